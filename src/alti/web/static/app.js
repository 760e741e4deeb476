// The page: one state, shown in three cards and kept in the address behind #.

import { keep } from "/keep.js";
import { graph, rowsOf, strip, unpacked } from "/mixing.js";
import { element, legend, paragraphs } from "/paint.js";

const PAUSE = 300; // milliseconds without a key before a text is explained
const MOST = 4; // methods at once
const EXAMPLES = [
  "A gorgeous, witty, seductive movie.",
  "The acting is superb, but the plot is a tedious mess.",
  "It is not a bad film at all.",
  "I wanted to love it, and I almost did until the dreadful ending.",
];
const OTHERS = { masked: (mask) => [`The film was ${mask}.`], causal: () => ["The keys to the cabinet"], token: () => ["Marie Curie worked in Paris."] };
const START = { model: null, text: EXAMPLES[1], other: null, methods: ["alti", "absence"], target: null, position: null, unit: "words", panel: 0, place: null, layer: null, since: "input", threshold: null };

const at = (id) => document.getElementById(id);
const state = { ...START };
const views = [null, null];
const asking = [null, null];
let told = null; // what GET /api/models said
let timer = null;
let moved = true; // the picked token is to be scrolled to

const texts = () => (state.other === null ? [state.text] : [state.text, state.other]);
const model = () => told.models.find((one) => one.name === state.model);
const examples = () => OTHERS[model().kind]?.(model().mask) ?? EXAMPLES;
const method = (spec) => told.methods.find((one) => one.name === spec.split(":")[0]);
const questionOf = (text) => ({ model: state.model, text, methods: state.methods, target: classOfChoice(), position: state.position });

function classOfChoice() {
  return state.methods.some((spec) => method(spec)?.classes) ? state.target : null;
}

// ---- the address

const NAMES = ["model", "text", "other", "methods", "target", "position", "unit", "panel", "place", "layer", "since", "threshold"];
const COUNTS = new Set(["target", "position", "panel", "place", "layer", "threshold"]);

function remember() {
  const kept = new URLSearchParams();
  for (const name of NAMES) {
    const value = state[name];
    if (value !== null && String(value) !== String(START[name])) kept.set(name, Array.isArray(value) ? value.join(",") : value);
  }
  if (!kept.has("text")) kept.set("text", state.text);
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, START);
  moved = true;
  for (const name of NAMES) {
    if (!kept.has(name)) continue;
    const value = kept.get(name);
    if (COUNTS.has(name)) state[name] = /^\d{1,9}$/.test(value) ? Number(value) : START[name];
    else state[name] = name === "methods" ? value.split(",").slice(0, MOST) : value;
  }
  if (!model()) state.model = told.models[0].name;
  if (!["words", "tokens"].includes(state.unit)) state.unit = "words";
  if (!["input", "layer"].includes(state.since)) state.since = "input";
  if (state.threshold !== null) state.threshold = Math.min(50, Math.max(1, state.threshold));
  state.panel = state.other !== null && state.panel === 1 ? 1 : 0;
  fitMethods();
  if (!kept.has("text")) fitText();
}

// Another kind of model reads another kind of text.
function fitText() {
  const all = [EXAMPLES, ...Object.values(OTHERS).map((made) => made(model().mask))].flat();
  if (all.includes(state.text) && !examples().includes(state.text)) state.text = examples().at(1) ?? examples()[0];
  if (model().kind === "token") state.position ??= 1;
}

function fitMethods() {
  state.methods = state.methods.filter((spec) => model().methods.includes(spec.split(":")[0]));
  if (!state.methods.length) state.methods = ["alti"];
}

// ---- the server

async function ask(address, question, signal) {
  const body = JSON.stringify(question);
  let answer;
  try {
    answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer: is alti serve still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answered ${answer.status}.`);
}

async function explain(panel) {
  asking[panel]?.abort();
  const text = texts()[panel];
  if (text === undefined || !text.trim()) {
    views[panel] = null;
    return;
  }
  const stop = (asking[panel] = new AbortController());
  const answer = await ask("/api/view", questionOf(text), stop.signal);
  const view = await answer.json();
  if (stop !== asking[panel]) return;
  view.maps = unpacked(view.mixing);
  views[panel] = view;
}

async function refresh() {
  clearTimeout(timer);
  document.body.setAttribute("aria-busy", "true");
  remember();
  const done = await Promise.allSettled(texts().map((_, panel) => explain(panel)));
  if (state.other === null) views[1] = null;
  if (done.some((one) => one.status === "rejected" && one.reason.name === "AbortError")) return; // a newer one is on its way
  document.body.removeAttribute("aria-busy");
  const wrong = done.find((one) => one.status === "rejected");
  say(wrong ? wrong.reason.message : "");
  document.body.classList.toggle("stale", Boolean(wrong));
  if (!wrong) show();
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(refresh, PAUSE);
}

// ---- what is seen

function say(sentence) {
  at("error").textContent = sentence;
  at("error").hidden = !sentence;
}

export function toast(sentence) {
  at("toast").textContent = sentence;
  at("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => (at("toast").hidden = true), 2500);
}

function show() {
  remember();
  showClasses();
  const shown = views.slice(0, texts().length).filter(Boolean);
  at("results").replaceChildren(...shown.map((view) => result(view, views.indexOf(view))));
  at("results").classList.toggle("two", shown.length > 1);
  at("status").textContent = shown.map((view) => `${view.label ?? ""} ${view.probability === null ? "" : percent(view.probability)}`).join("; ");
  showMixing();
}

function result(view, panel) {
  const rows = view.rows.map((row) => {
    const { made, scale } = paragraphs(view, state.unit, row.scores, { picked: panel === state.panel ? placeOf(view) : null, pick: (place) => pick(panel, place), said: view.label ?? "" });
    const blind = view.rows.length > 1 && view.classes.length > 1 && !method(row.method).classes;
    const name = element("h3", { class: "alti-name", title: method(row.method).what }, row.method, ...(blind ? [element("small", { text: "the same for every class" })] : []));
    const drawn = element("div", { class: `alti-${state.unit}` }, ...made, legend(scale, view.label ?? ""));
    return element("div", { class: "alti-row", "data-method": row.method, "data-home": `${panel} ${row.method}` }, name, element("div", { class: "alti-view" }, drawn));
  });
  return element("section", { class: "alti result", "aria-label": "Explanation" }, prediction(view), ...rows);
}

function prediction(view) {
  const head = element("header", {});
  if (view.label !== null) {
    const chance = view.probability === null ? "" : percent(view.probability);
    const asked = view.classes.length && view.classes[0].index !== view.target;
    head.append(element("p", { class: "alti-says" }, element("strong", { dir: "auto", text: quoted(view.label) }), element("span", { text: chance }), ...(asked ? [element("span", { text: `asked for; predicted: ${view.classes[0].label}` })] : [])));
  }
  if (view.classes.length > 1) head.append(bars(view));
  return head;
}

const quoted = (label) => (label.trim() === label ? label : `“${label}”`);

function percent(share) {
  const shown = 100 * share;
  return `${shown >= 99.95 && share < 1 ? ">99.9" : shown < 0.05 && share > 0 ? "<0.1" : shown.toFixed(1)} %`;
}

function bars(view) {
  const shown = [...view.classes.slice(0, 5)].sort((a, b) => a.index - b.index);
  const lines = shown.map((one) => {
    const bar = element("span", { class: "bar" });
    const full = element("span", { class: one.index === view.target ? "full on" : "full" });
    full.style.width = `${100 * one.probability}%`;
    bar.append(full);
    return element("li", {}, element("span", { class: "name", dir: "auto", text: quoted(one.label) }), bar, element("span", { class: "share", text: percent(one.probability) }));
  });
  return element("ul", { class: "bars", "aria-label": "Probabilities" }, ...lines);
}

// The token whose mixing is shown: the one that was clicked, else the one that the prediction is read from.
function placeOf(view) {
  if (state.place !== null && state.place < view.names.length) return state.place;
  return view.position ?? Math.max(0, view.special.indexOf(false));
}

function placesOf(view) {
  const place = placeOf(view);
  const piece = view[state.unit].flat().find((one) => one.places.includes(place));
  return piece?.places.length ? piece.places : [place];
}

function pick(panel, place) {
  const home = document.activeElement.closest("[data-home]")?.dataset.home;
  Object.assign(state, { panel, place });
  moved = home !== "strip" && home !== "flow";
  show();
  if (home) document.querySelector(`[data-home="${CSS.escape(home)}"] [data-place="${place}"]`)?.focus({ preventScroll: true });
}

function showMixing() {
  const view = views[state.panel] ?? views[0];
  at("mixing").hidden = at("graph").hidden = !view;
  if (!view) return;
  const places = placesOf(view);
  const name = places.length > 1 ? view[state.unit].flat().find((one) => one.places.includes(places[0])).text : view.names[places[0]];
  const read = places.includes(view.position) ? "; the prediction is read from it" : "";
  at("mixing-title").replaceChildren("What ", element("em", { dir: "auto", text: name }), " is made of");
  at("mixing-by").textContent = `As ${view.mixing.method} sees it${read}. Click a word for another.`;
  at("layer").max = view.maps.length;
  const rows = rowsOf(view.maps, places, view.names.length, state.since);
  at("strip").replaceChildren(strip(view, rows, { layer: layerOf(view), places, room: at("strip").clientWidth, choose: (l) => choose(view, rows, l), pick: (place) => pick(state.panel, place) }));
  showLayer(view, rows);
  if (moved) for (const box of [at("strip"), at("flow")]) centre(box, box.querySelector(".on[data-place]"));
  moved = false;
  at("layer").oninput = () => choose(view, rows, Number(at("layer").value) - 1);
}

function centre(box, column) {
  if (column) box.scrollLeft += column.getBoundingClientRect().left - box.getBoundingClientRect().left - box.clientWidth / 2;
}

function layerOf(view) {
  return Math.min(state.layer ?? view.maps.length - 1, view.maps.length - 1);
}

function choose(view, rows, layer) {
  state.layer = layer;
  remember();
  showLayer(view, rows);
}

function showLayer(view, rows) {
  const layer = layerOf(view);
  at("layer").value = layer + 1;
  at("layer-number").textContent = `${layer + 1} of ${rows.length}`;
  for (const line of at("strip").querySelectorAll("tr[data-layer]")) line.classList.toggle("on", Number(line.dataset.layer) === layer);
  const { made, scale } = paragraphs(view, state.unit, rows[layer], { picked: placeOf(view), pick: (place) => pick(state.panel, place) });
  at("mixed").replaceChildren(element("div", { class: `alti-${state.unit}` }, ...made, legend(scale, "")));
  showGraph(view);
}

function showGraph(view) {
  const places = placesOf(view);
  const name = view[state.unit].flat().find((one) => one.places.includes(places[0]))?.text || view.names[places[0]];
  const last = layerOf(view);
    const threshold = state.threshold ?? Math.max(1, Math.min(8, Math.round(150 / view.names.length))); // in long texts, shares are small
  at("threshold").value = threshold;
  at("threshold-number").textContent = `${threshold} %`;
  const kept = at("flow").scrollLeft;
  const { pictures, full } = graph(view, view.maps, places, { threshold: threshold / 100, last, room: at("flow").clientWidth, pick: (place) => pick(state.panel, place) });
  at("flow").replaceChildren(...pictures);
  at("flow").scrollLeft = kept;
  at("graph-by").replaceChildren("Blue leads to ", element("em", { dir: "auto", text: name }), ` at layer ${last + 1}; the wider, the more.${full ? ` Only the ${full} strongest are drawn.` : ""}`);
}

// ---- controls

function showControls() {
  at("text").value = state.text;
  at("other").value = state.other ?? "";
  at("second").hidden = state.other === null;
  at("compare").textContent = state.other === null ? "Compare two texts" : "One text";
  at("compare").setAttribute("aria-pressed", String(state.other !== null));
  at("model").value = state.model;
  at("models").hidden = told.models.length < 2;
  at("places").hidden = model().kind === "sequence" || model().kind === "encoder";
  at("position").value = state.position ?? "";
  for (const radio of document.querySelectorAll("[name=unit]")) radio.checked = radio.value === state.unit;
  for (const radio of document.querySelectorAll("[name=since]")) radio.checked = radio.value === state.since;
  at("examples").replaceChildren(...examples().map((text) => element("button", { type: "button", text, onclick: () => { Object.assign(state, { text, place: null, target: null }); showControls(); refresh(); } })));
  showMethods();
  showClasses();
  for (const field of [at("text"), at("other")]) grow(field);
}

function showMethods() {
  at("methods-chosen").textContent = state.methods.join(", ");
  const full = state.methods.length >= MOST;
  const line = (one) => {
    const on = state.methods.some((spec) => spec.split(":")[0] === one.name);
    const box = element("input", { type: "checkbox", value: one.name, checked: on, disabled: (full && !on) || (on && state.methods.length === 1) });
    box.addEventListener("change", () => toggle(one.name, box.checked));
    return element("label", { class: "option" }, box, element("span", {}, element("b", { text: one.name }), element("small", { text: one.what.replace(/^[^:]*: (.)/, (_, first) => first.toUpperCase()) })));
  };
  const offered = told.methods.filter((one) => model().methods.includes(one.name));
  const group = (title, some) => [element("p", { class: "title", text: title }), ...some.map(line)];
  const blind = offered.filter((one) => !one.classes);
  at("methods").querySelector(".panel").replaceChildren(
    element("p", { class: "faint", text: `Choose up to ${MOST}.` }),
    ...group("How the input is mixed", blind),
    ...group("What speaks for and against a class", offered.filter((one) => one.classes)),
  );
}

function toggle(name, on) {
  const order = told.methods.map((one) => one.name);
  const rest = state.methods.filter((spec) => spec.split(":")[0] !== name);
  state.methods = on ? [...rest, name].sort((a, b) => order.indexOf(a.split(":")[0]) - order.indexOf(b.split(":")[0])) : rest;
  showMethods();
  at("methods").querySelector(`[value="${name}"]`).focus();
  refresh();
}

function showClasses() {
  const named = model().labels.map((label, index) => ({ label, index }));
  const offered = named.length ? named : [...(views[state.panel]?.classes ?? [])].slice(0, 20);
  const options = offered.map(({ label, index }) => element("option", { value: index, text: quoted(label) }));
  at("class").replaceChildren(element("option", { value: "", text: "as predicted" }), ...options);
  at("class").value = state.target !== null && offered.some((one) => one.index === state.target) ? String(state.target) : "";
  const reads = state.methods.some((spec) => method(spec)?.classes);
  at("classes").hidden = !offered.length;
  at("class").disabled = !reads;
  at("class-hint").hidden = reads || !offered.length;
  at("class-hint").textContent = reads ? "" : `${state.methods.join(" and ")} ${state.methods.length > 1 ? "show" : "shows"} the same for every class: add absence or linear to switch it.`;
}

function grow(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, 230)}px`;
}

function wire() {
  at("text").addEventListener("input", () => { state.text = at("text").value; state.place = null; grow(at("text")); soon(); });
  at("other").addEventListener("input", () => { state.other = at("other").value; state.place = null; grow(at("other")); soon(); });
  at("model").addEventListener("change", () => { Object.assign(state, { model: at("model").value, target: null, position: null, place: null, layer: null }); fitMethods(); fitText(); showControls(); refresh(); });
  at("class").addEventListener("change", () => { state.target = at("class").value === "" ? null : Number(at("class").value); refresh(); });
  at("position").addEventListener("change", () => { state.position = at("position").value === "" ? null : Number(at("position").value); refresh(); });
  at("compare").addEventListener("click", compare);
  for (const radio of document.querySelectorAll("[name=unit]")) radio.addEventListener("change", () => { state.unit = radio.value; show(); });
  for (const radio of document.querySelectorAll("[name=since]")) radio.addEventListener("change", () => { state.since = radio.value; show(); });
  at("threshold").addEventListener("input", () => { state.threshold = Number(at("threshold").value); remember(); showGraph(views[state.panel] ?? views[0]); });
  at("theme").addEventListener("click", switchTheme);
  at("link").addEventListener("click", copyLink);
  addEventListener("hashchange", () => { recall(); showControls(); refresh(); });
  addEventListener("click", (event) => { for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target) && event.target.isConnected) menu.open = false; });
  addEventListener("keydown", (event) => { if (event.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) { menu.open = false; menu.querySelector("summary").focus(); } });
  keep(at("keep"), { ask, toast, node: () => at("results"), question: () => ({ ...questionOf(state.text), other: state.other?.trim() ? state.other : null, words: state.unit === "words" }) });
}

function compare() {
  state.other = state.other === null ? state.text : null;
  state.panel = 0;
  showControls();
  if (state.other !== null) at("other").focus();
  refresh();
}

function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("alti-theme", document.documentElement.dataset.theme); } catch { /* a browser that keeps nothing */ }
}

async function copyLink() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    toast("Link copied: it opens this view again.");
  } catch {
    toast("Copy the address of this page: it opens this view again.");
  }
}

async function start() {
  try { document.documentElement.dataset.theme = localStorage.getItem("alti-theme") ?? ""; } catch { /* as above */ }
  if (!document.documentElement.dataset.theme) delete document.documentElement.dataset.theme;
  try {
    told = await (await fetch("/api/models")).json();
  } catch {
    say("The server does not answer: is alti serve still running?");
    return;
  }
  at("model").append(...told.models.map((one) => element("option", { value: one.name, text: one.name })));
  recall();
  wire();
  showControls();
  await refresh();
}

start();
