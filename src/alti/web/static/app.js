// The page: sends requests to the server and connects controls, state and cards.

import { cancelAnswer, isAnswering, redrawAnswer, wireAnswer } from "/answer.js";
import { fill, isShown, show, showGraph, targetShown } from "/cards.js";
import { grow, showClasses, showControls, showHeld } from "/controls.js";
import { STEPS } from "/graph.js";
import { wireHeads } from "/heads.js";
import { isPicturing, showImageControls, showPicture, wireImage } from "/image.js";
import { keep } from "/keep.js";
import { wireLens } from "/lens.js";
import { answerFields } from "/prompt.js";
import { ask, UNREACHABLE, unpacked } from "/server.js";
import { address, allow, fit, held, link, questionOf } from "/state.js";
import { wireSets } from "/sets.js";
import { wireViewSet } from "/views.js";
import { newTicket, offer, showNothing, watch } from "/waiting.js";
import { cancelWhatIf, wireWhatIf } from "/whatif.js";
import { catalogue, model, recall, remember, rememberSoon, sides, state, texts } from "/state.js";

const PAUSE = 300; // milliseconds between the last keystroke and the request
const EDGE = 12; // pixels between a menu and the end of the page

const at = (id) => document.getElementById(id);
const page = document.documentElement;
let pending = null; // aborts the current request
let timer = null;

async function viewOf({ text, model: name }, signal, target) {
  if (!text.trim()) return null;
  const chosen = state.methods;
  const ticket = newTicket();
  const question = {
    ...questionOf(text),
    model: name,
    ...(target === null ? {} : { target }),
    ticket,
  };
  if (name !== state.model) question.against = model().labels[question.against] ?? question.against;
  const stopWatching = watch(ticket);
  let view;
  try {
    const response = await ask("/api/view", question, signal);
    view = await response.json();
  } finally {
    stopWatching();
  }
  const rows = view.rows.filter((row) => chosen.includes(row.method));
  const { text_pair, position } = question;
  const asked = { model: name, text, text_pair, position };
  return { ...view, rows, maps: unpacked(view.mixing), asked };
}

// The views of one or two texts, or of two models; the second is explained for the class of the
// first, because scores for different classes cannot be compared.
async function viewsOf(shown, signal) {
  const results = [];
  for (const side of shown) {
    const first = results[0]?.value;
    const target = (state.versus === null ? first?.target : nameOfClass(first)) ?? null;
    const [settled] = await Promise.allSettled([viewOf(side, signal, target)]);
    results.push(settled);
  }
  return results;
}

// Two models may number the same class differently, so the second is asked by its name.
const nameOfClass = (view) =>
  model().labels[view?.target] ??
  view?.classes.find(({ index }) => index === view.target)?.label ??
  view?.label;

// Explain the texts in the state, aborting a request that is still running.
async function refresh() {
  clearTimeout(timer);
  pending?.abort();
  const controller = new AbortController();
  pending = controller;
  remember();
  showHeld();
  if (isAnswering()) {
    pending = null;
    document.body.removeAttribute("aria-busy");
    return;
  }
  if (link.missing !== null) {
    document.body.removeAttribute("aria-busy");
    fill([]);
    return;
  }
  document.body.setAttribute("aria-busy", "true");
  showNothing();
  let message = "";
  try {
    if (isPicturing()) {
      fill([]);
      await showPicture(controller.signal);
    } else message = await showTexts(controller);
  } catch (error) {
    message = error.message;
  }
  if (controller !== pending) return;
  pending = null;
  showNothing();
  document.body.removeAttribute("aria-busy");
  document.body.classList.toggle("stale", Boolean(message));
  showClasses();
  showError(message);
}

async function showTexts(controller) {
  const results = await viewsOf(sides(), controller.signal);
  const views = results.map(({ value }) => value ?? null); // null: this text failed
  const kept = !views.some(Boolean) && isShown(sides()); // only what was asked about it failed
  if (controller === pending && !controller.signal.aborted && !kept) {
    fill(views);
    document.dispatchEvent(new CustomEvent("explained", { detail: views }));
  }
  return failures(results);
}

// Cancel the request that is running, which also frees the server; or ask again.
function cancel() {
  if (cancelWhatIf()) return;
  if (isAnswering()) {
    cancelAnswer();
    return;
  }
  if (pending === null) {
    refresh();
    return;
  }
  pending.abort();
  pending = null;
  document.body.removeAttribute("aria-busy");
  document.body.classList.add("stale");
  offer("Cancelled: this text is not explained.");
}

// The error messages of the texts, named unless both failed in the same way.
function failures(results) {
  const names =
    state.versus === null ? ["Text", "Compare with"] : sides().map(({ model }) => model);
  const failed = results
    .map(({ reason }, i) => reason && { name: names[i], message: reason.message })
    .filter(Boolean);
  const messages = new Set(failed.map(({ message }) => message));
  if (messages.size === 1 && failed.length === results.length) return failed[0].message;
  return failed.map(({ name, message }) => `${name}: ${message}`).join(" ");
}

function refreshSoon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE);
}

function showError(message) {
  at("error").textContent = message;
  at("error").hidden = !message;
}

function toast(message) {
  at("toast").textContent = message;
  at("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (at("toast").hidden = true), 2500);
}

// ---- user input

const on = (id, event, handle) => at(id).addEventListener(event, () => handle(at(id)));
const numberIn = (field) => (field.value === "" ? null : Number(field.value));

function wire() {
  wireTexts();
  wireChoices();
  wireViews();
  on("add", "click", togglePair);
  on("compare", "click", toggleComparison);
  on("compute", "click", () => {
    if (link.missing === null) allow();
    link.missing = null;
    redraw();
    at("results").focus(); // the button disappears
  });
  on("cancel", "click", cancel);
  wireAnswer({ showError, redraw });
  wireWhatIf();
  wireSets({ redraw, toast });
  wireViewSet({ toast });
  wireImage(refresh);
  wireHeads();
  wireLens();
  on("theme", "click", switchTheme);
  on("link", "click", copyLink);
  wireMenus();
  wireWindow();
}

function wireTexts() {
  for (const name of ["text", "pair", "other"]) {
    on(name, "input", (field) => {
      Object.assign(state, { [name]: field.value, place: null });
      allow();
      grow(field);
      refreshSoon();
    });
  }
}

function wireChoices() {
  on("model", "change", (field) => {
    const fresh = { target: null, against: null, position: null, place: null, layer: null };
    Object.assign(fresh, { said: null, rather: null });
    Object.assign(state, { model: field.value, ...fresh });
    link.missing = null;
    fit();
    document.dispatchEvent(new Event("model-chosen"));
    redraw();
  });
  on("versus-model", "change", (field) => {
    Object.assign(state, { versus: field.value || null, panel: 0 });
    if (state.versus !== null) state.other = null;
    redraw();
  });
  on("class", "change", (field) => {
    state.target = numberIn(field);
    if (state.target === null || state.target === state.against) state.against = null;
    refresh();
  });
  on("rival", "change", (field) => {
    state.target ??= targetShown(); // otherwise the rival could be predicted for another text
    state.against = numberIn(field);
    refresh();
  });
  for (const name of ["said", "rather"]) {
    on(name, "change", (field) => {
      state[name] = field.value || null;
      refresh();
    });
  }
  document.addEventListener("take-word", ({ detail }) => {
    state.said = detail;
    redraw();
  });
  document.addEventListener("explain-at", ({ detail }) => {
    Object.assign(state, { position: detail, place: null });
    redraw();
  });
  on("position", "change", (field) => {
    state.position = numberIn(field);
    refresh();
  });
}

function wireViews() {
  for (const radio of document.querySelectorAll("[name=unit], [name=since]")) {
    radio.addEventListener("change", () => {
      state[radio.name] = radio.value;
      show();
    });
  }
  on("threshold", "input", (field) => {
    state.threshold = STEPS[numberIn(field)];
    rememberSoon();
    showGraph();
  });
}

function wireWindow() {
  addEventListener("resize", () => {
    for (const field of document.querySelectorAll("textarea")) grow(field);
    clearTimeout(wireWindow.timer);
    wireWindow.timer = setTimeout(() => isAnswering() || show(), PAUSE);
    for (const panel of document.querySelectorAll(".menu[open] .panel")) keepInside(panel);
  });
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // not a link to a view
    recall();
    redraw();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash belongs to the view
    at("results").focus();
  });
}

function wireMenus() {
  const question = () => {
    if (held().length === state.methods.length) {
      throw new Error("There is nothing to export yet: compute the methods first.");
    }
    const [text = "", other = null] = texts().filter((text) => text.trim());
    return { ...questionOf(text), other, versus: state.versus, words: state.unit === "words" };
  };
  const exported = ({ format, maps = false }) => {
    if (!isAnswering()) return ask("/api/export", { ...question(), format, maps });
    return ask("/api/answer_export", { model: state.model, ...answerFields(), format, maps });
  };
  keep(at("keep"), { exported, toast });
  for (const menu of document.querySelectorAll("details.menu")) {
    menu.addEventListener("toggle", () => keepInside(menu.querySelector(".panel")));
  }
  const open = () => document.querySelectorAll("details.menu[open]");
  addEventListener("click", ({ target }) => {
    if (!target.isConnected) return;
    for (const menu of open()) if (!menu.contains(target)) menu.open = false;
  });
  addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    for (const menu of open()) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
}

// A panel begins below its button, and is moved to the left where the page ends.
function keepInside(panel) {
  panel.style.translate = "";
  const { left, right } = panel.getBoundingClientRect();
  const over = right + EDGE - document.body.getBoundingClientRect().right;
  if (over > 0) panel.style.translate = `${-Math.min(over, Math.max(0, left - EDGE))}px`;
}

function redraw() {
  showControls(refresh);
  showImageControls();
  refresh();
  redrawAnswer();
}

function togglePair() {
  Object.assign(state, { pair: state.pair === null ? "" : null, place: null });
  redraw();
  if (state.pair !== null) at("pair").focus();
}

function toggleComparison() {
  Object.assign(state, { other: state.other === null ? state.text : null, versus: null, panel: 0 });
  redraw();
  if (state.other !== null) at("other").focus();
}

function switchTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const dark = (page.dataset.theme || system) === "dark";
  page.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("alti-theme", page.dataset.theme);
  } catch {
    // storage is disabled
  }
}

function recallTheme() {
  try {
    const theme = localStorage.getItem("alti-theme");
    if (theme) page.dataset.theme = theme;
  } catch {
    // storage is disabled
  }
}

async function copyLink() {
  remember();
  try {
    await navigator.clipboard.writeText(new URL(address(), location.href).href);
    toast("Link copied: it opens this view again.");
  } catch {
    toast("Copy the address of this page: it opens this view again.");
  }
}

async function start() {
  recallTheme();
  try {
    const response = await fetch("/api/models");
    Object.assign(catalogue, await response.json());
  } catch {
    showError(UNREACHABLE);
    return;
  }
  recall();
  wire();
  redraw();
}

start();
