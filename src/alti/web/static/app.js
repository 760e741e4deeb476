// The page: asks the server, and connects controls, state and cards.

import { fill, show, showGraph, targetShown } from "/cards.js";
import { grow, showClasses, showControls, showHeld } from "/controls.js";
import { keep } from "/keep.js";
import { unpacked } from "/mixing.js";
import { element } from "/paint.js";
import { address, allow, fit, held, questionOf } from "/state.js";
import { recall, remember, rememberSoon, state, texts, told } from "/state.js";

const PAUSE = 300; // milliseconds without a key before a text is explained
const SILENT = "The server does not answer: is alti serve still running?";

const at = (id) => document.getElementById(id);
const page = document.documentElement;
let asking = null; // what is on its way, to be called off
let timer = null;

// ---- the server

async function ask(address, question, signal) {
  const headers = { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(address, { method: "POST", headers, body: JSON.stringify(question), signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(SILENT);
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answered ${answer.status}.`);
}

async function viewOf(text, signal) {
  if (!text.trim()) return null;
  const chosen = state.methods;
  const view = await (await ask("/api/view", questionOf(text), signal)).json();
  const rows = view.rows.filter((row) => chosen.includes(row.method));
  return { ...view, rows, maps: unpacked(view.mixing) };
}

// Explain what the state says; a request that is still on its way is called off.
async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  document.body.setAttribute("aria-busy", "true");
  remember();
  showHeld();
  let wrong = "";
  try {
    const answers = await Promise.allSettled(texts().map((text) => viewOf(text, mine.signal)));
    if (mine === asking) fill(answers.map((answer) => answer.value ?? null)); // one of two can be shown alone
    wrong = complaint(answers);
  } catch (error) {
    wrong = error.message;
  }
  if (mine !== asking) return;
  document.body.removeAttribute("aria-busy");
  document.body.classList.toggle("stale", Boolean(wrong));
  showClasses();
  say(wrong);
}

// What went wrong, and with which of two texts.
function complaint(answers) {
  const names = ["Text", "Compare with"];
  const said = answers.map(({ reason }, i) => reason && { name: names[i], message: reason.message }).filter(Boolean);
  if (new Set(said.map(({ message }) => message)).size === 1 && said.length === answers.length) return said[0].message;
  return said.map(({ name, message }) => `${name}: ${message}`).join(" ");
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE);
}

function say(sentence) {
  at("error").textContent = sentence;
  at("error").hidden = !sentence;
}

function toast(sentence) {
  at("toast").textContent = sentence;
  at("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (at("toast").hidden = true), 2500);
}

// ---- what the user does

const on = (id, event, act) => at(id).addEventListener(event, () => act(at(id)));
const count = (field) => (field.value === "" ? null : Number(field.value));

function wire() {
  for (const name of ["text", "pair", "other"]) {
    on(name, "input", (field) => {
      Object.assign(state, { [name]: field.value, place: null });
      allow();
      grow(field);
      soon();
    });
  }
  on("model", "change", (field) => {
    Object.assign(state, { model: field.value, target: null, against: null, position: null, place: null, layer: null });
    fit();
    again();
  });
  on("class", "change", (field) => {
    state.target = count(field);
    if (state.target === null || state.target === state.against) state.against = null;
    refresh();
  });
  on("rival", "change", (field) => {
    state.target ??= targetShown(); // else another text could be predicted as the rival
    state.against = count(field);
    refresh();
  });
  on("position", "change", (field) => {
    state.position = count(field);
    refresh();
  });
  for (const radio of document.querySelectorAll("[name=unit], [name=since]")) {
    radio.addEventListener("change", () => {
      state[radio.name] = radio.value;
      show();
    });
  }
  on("threshold", "input", (field) => {
    state.threshold = count(field);
    rememberSoon();
    showGraph();
  });
  on("add", "click", addPair);
  on("compare", "click", compare);
  on("compute", "click", () => {
    allow();
    refresh();
    at("results").focus(); // the button is gone
  });
  on("theme", "click", switchTheme);
  on("link", "click", copyLink);
  wireMenus();
  addEventListener("resize", () => {
    clearTimeout(wire.timer);
    wire.timer = setTimeout(show, PAUSE);
  });
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // no view of ours
    recall();
    again();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the view's
    at("results").focus();
  });
}

function wireMenus() {
  const question = () => {
    const nothing = held().length === state.methods.length;
    if (nothing) throw new Error("There is nothing to export yet: compute it first.");
    const [text = "", other = null] = texts().filter((text) => text.trim());
    return { ...questionOf(text), other, words: state.unit === "words" };
  };
  keep(at("keep"), { ask, toast, question, node: () => at("results") });
  const open = () => document.querySelectorAll("details.menu[open]");
  addEventListener("click", ({ target }) => {
    for (const menu of open()) if (target.isConnected && !menu.contains(target)) menu.open = false;
  });
  addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    for (const menu of open()) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
}

function again() {
  showControls(refresh);
  refresh();
}

function addPair() {
  Object.assign(state, { pair: state.pair === null ? "" : null, place: null });
  again();
  if (state.pair !== null) at("pair").focus();
}

function compare() {
  Object.assign(state, { other: state.other === null ? state.text : null, panel: 0 });
  again();
  if (state.other !== null) at("other").focus();
}

function switchTheme() {
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("alti-theme", page.dataset.theme);
  } catch {
    // a browser that keeps nothing
  }
}

function recallTheme() {
  try {
    const theme = localStorage.getItem("alti-theme");
    if (theme) page.dataset.theme = theme;
  } catch {
    // as above
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
    Object.assign(told, await (await fetch("/api/models")).json());
  } catch {
    say(SILENT);
    return;
  }
  at("model").append(...told.models.map((one) => element("option", { value: one.name, text: one.name })));
  recall();
  wire();
  again();
}

start();
