// The cards below the inputs: the explanations, what a token consists of, and the graph.

import { changes, commonScale, widest } from "/changes.js";
import { graph, STEPS, suitable } from "/graph.js";
import { rowsOf, strip } from "/mixing.js";
import { added, element, legend, paragraphs, scaleOf } from "/paint.js";
import { method, model, questionOf, remember, rememberSoon, sideName, state } from "/state.js";
import { showWhatIf } from "/whatif.js";

const SHARES = "shares of 1";
const BARS = 5; // the most probable classes to show
const at = (id) => document.getElementById(id);
const views = [null, null];
let moved = true; // whether to scroll to the picked token

export const quoted = (label) => (label.trim() === label ? label : `“${label}”`);
export const classesShown = () => active()?.classes ?? [];
// Whether what is on the page is about these texts and models.
export const isShown = (sides) =>
  sides.every(({ text, model: name }, i) => {
    const { asked } = views[i] ?? {};
    return asked?.text === text && asked.model === name;
  });
export const targetShown = () => active()?.target ?? null;

// Show the server's answers, one for each text.
export function fill(answers) {
  views.splice(0, 2, answers[0] ?? null, answers[1] ?? null);
  moved = true;
  show();
}

const active = () => views[state.panel] ?? views.find(Boolean);

export function show() {
  remember();
  const shown = views.filter(Boolean);
  const changed = shown.length > 1 && state.versus === null ? changes(...shown, state.unit) : null;
  at("results").replaceChildren(...shown.map((view) => result(view, views.indexOf(view), changed)));
  at("results").classList.toggle("two", shown.length > 1);
  const predictions = shown.map((view) => [view.label, chance(view)].filter(Boolean).join(" "));
  at("status").textContent = predictions.join("; ");
  at("deeper-of").hidden = true; // it has the slider above
  at("mixing").hidden = at("graph").hidden = at("deeper").hidden = !shown.length;
  if (shown.length) showMixing(active());
  showWhatIf(shown.length ? changeable(active()) : null);
}

// What can be left out of a text: the clicked word, or all of them.
function changeable(view) {
  if (view.probability === null) return null;
  const { text, text_pair, position } = questionOf(view.asked.text);
  const row = view.rows.find((each) => method(each.method).classes) ?? view.rows[0];
  const segment = view.words.findIndex((passage) => passage.some((piece) => isPicked(view, piece)));
  const piece = view.words[segment]?.find((each) => isPicked(view, each));
  return {
    question: { model: view.model, text, text_pair, position, target: view.target },
    method: row?.method ?? "alti",
    place: piece ? [segment, piece.start] : null,
    name: piece?.text ?? "",
    units: ["word", "sentence"],
  };
}

const isPicked = (view, { places, special }) =>
  !special && state.place !== null && view === active() && places.includes(placeOf(view));

// ---- the explanations of a text

function result(view, panel, changed) {
  const rows = view.rows.map((row) => resultRow(view, panel, row, changed));
  const about = { class: "alti result", "aria-label": "Explanation" };
  return element("section", about, prediction(view), ...rows);
}

function resultRow(view, panel, row, changed) {
  const { side: label, unit } = row;
  const picked = view === active() ? placeOf(view) : null;
  const { texts, scale } = paragraphs(view, state.unit, row.scores, {
    picked,
    label,
    changed,
    scale: commonScale(views.filter(Boolean), state.unit, row.method),
    pick: (place) => pick(panel, place),
  });
  const { what, classes } = method(row.method);
  const name = element("h3", { class: "alti-name", title: what, text: row.method });
  const ignoresClass = view.rows.length > 1 && view.classes.length > 1 && !classes;
  if (ignoresClass) name.append(element("small", { text: "the same for every class" }));
  const left = state.unit === "words" ? row.left : [];
  const ramp = legend(scale, { label, unit, left });
  const text = element("div", { class: `alti-${state.unit}` }, ...texts, ramp);
  return element(
    "div",
    { class: "alti-row", "data-method": row.method, "data-home": `${panel} ${row.method}` },
    name,
    element("div", { class: "alti-view" }, text),
  );
}

function prediction(view) {
  const head = element("header");
  const says = element("p", { class: "alti-says" });
  if (view.label !== null) {
    says.append(element("strong", { dir: "auto", text: quoted(view.label) }));
    says.append(element("span", { text: chance(view) }));
    says.append(...notesOn(view));
  }
  const by = element("span", {
    class: state.versus === null ? "alti-by" : "alti-by whole",
    text: view.model,
  });
  if (state.versus === null) says.append(by);
  else says.prepend(by); // what differs comes first
  head.append(says);
  if (view.classes.length > 1) head.append(bars(view));
  return head;
}

// What the prediction is where another class is explained, and how the other text changes it.
function notesOn(view) {
  const first = views[0];
  const compared = view !== first && first?.probability != null && view.probability != null;
  const texts = [];
  if (compared) {
    const change = (view.probability - first.probability).toFixed(3).replace("-", "−");
    texts.push(`Δp ${change.startsWith("−") ? "" : "+"}${change}`);
  }
  const best = view.classes[0];
  if (best && best.index !== view.target) {
    const first = state.versus === null ? "the first text" : sideName(0);
    const requested = (state.said ?? state.target) !== null;
    const why = requested ? "as requested" : `the class of ${first}`;
    texts.push(`${why}; the prediction is ${quoted(best.label)}`);
  }
  const notes = texts.map((text) => element("span", { text }));
  return view.spaced && state.said !== null ? [...notes, spacedNote(view.spaced)] : notes;
}

// To most language models a word begins with its space: offer the token that was probably meant.
function spacedNote({ label, probability }) {
  const text = `Take ${quoted(label)} (${percent(probability)})`;
  const take = () => document.dispatchEvent(new CustomEvent("take-word", { detail: label }));
  const button = element("button", { type: "button", class: "plain", id: "take-word", text });
  button.addEventListener("click", take);
  return element("span", {}, "the token without a space in front. ", button);
}

// What is read: the prediction, or the class that is explained in its place.
function readOf(view) {
  const best = view.classes[0];
  const what = best && best.index !== view.target ? "the class" : "the prediction";
  if (view.label === null) return what;
  return `${what} ${[quoted(view.label), chance(view)].filter(Boolean).join(", ")}`;
}

const chance = (view) => (view.probability === null ? "" : percent(view.probability));

export function percent(share) {
  const shown = (100 * share).toFixed(1);
  if (shown === "100.0" && share < 1) return ">99.9 %";
  return shown === "0.0" && share > 0 ? "<0.1 %" : `${shown} %`;
}

function bars(view) {
  let shown = view.classes.slice(0, BARS);
  if (view.classes.length <= BARS) shown = shown.toSorted((a, b) => a.index - b.index);
  const lines = shown.map((entry) => classBar(entry, entry.index === view.target));
  return element("ul", { class: "bars", "aria-label": "Probabilities" }, ...lines);
}

function classBar({ label, probability }, on) {
  const full = element("span", { class: on ? "full on" : "full" });
  full.style.width = `${100 * probability}%`;
  return element(
    "li",
    {},
    element("span", { class: "name", dir: "auto", text: quoted(label) }),
    element("span", { class: "bar" }, full),
    element("span", { class: "share", text: percent(probability) }),
  );
}

// ---- the token that was clicked

function placeOf(view) {
  const own = view === active(); // of two texts, a click is in one
  if (own && state.place !== null && state.place < view.names.length) return state.place;
  return view.position ?? Math.max(0, view.special.indexOf(false));
}

// In the word view, a click picks a word: the one of its tokens that the prediction is read from,
// so that the numbers are those of the row above; else all of them.
function picked(view) {
  const place = placeOf(view);
  const piece = view[state.unit].flat().find(({ places }) => places.includes(place));
  const all = piece?.places ?? [place];
  const places = all.includes(view.position) ? [view.position] : all;
  return { places, count: all.length, name: piece?.text || view.names[place] };
}

// Which of a word's sub-words is meant, where it has several.
function partOf(view, { places, count }) {
  if (count === 1) return "";
  if (places.length > 1) return `; the mean of its ${count} sub-words`;
  return `, from its sub-word ${view.names[places[0]]}`;
}

function pick(panel, place) {
  const home = document.activeElement.closest("[data-home]")?.dataset.home;
  Object.assign(state, { panel, place });
  moved = home !== "strip" && !home?.startsWith("flow");
  show();
  if (!home) return;
  const redrawn = `[data-home="${CSS.escape(home)}"] [data-place="${place}"]`;
  document.querySelector(redrawn)?.focus({ preventScroll: true });
}

export const pickHere = (place) => pick(views.indexOf(active()), place);

// What the picked tokens consist of, for each layer.
const madeOf = (view) => rowsOf(view.maps, picked(view).places, view.names.length, state.since);

function showMixing(view) {
  const { places } = picked(view);
  const made = new Map(views.filter(Boolean).map((each) => [each, madeOf(each)]));
  const rows = made.get(view);
  const scale = { largest: Math.max(...[...made.values()].flat(2)), signed: false };
  const choose = (layer) => {
    state.layer = layer;
    rememberSoon();
    showLayer(view, made);
  };
  const room = at("strip").clientWidth;
  const options = { places, scale, room, choose, pick: pickHere };
  at("strip").replaceChildren(...strip(view, rows, options));
  at("layer").max = rows.length;
  at("layer").oninput = () => choose(Number(at("layer").value) - 1);
  showLayer(view, made);
  if (moved) {
    for (const box of [at("strip"), ...boxes()]) centre(box, box.querySelector(".on[data-place]"));
  }
  moved = false;
}

// Whether the prediction is read from these tokens at the chosen layer, which only the last can be.
const isRead = (view, places) =>
  places.includes(view.position) && layerOf(view) === view.maps.length - 1;

function showMixingTitle(view, word) {
  const { places, name } = word;
  const title = element("em", { dir: "auto", text: name, title: meaningOf(view, places[0], name) });
  const which = views.every(Boolean) ? ` in ${sideName(views.indexOf(view))}` : "";
  at("mixing-title").replaceChildren("What ", title, ` is made of${which}`);
  const seen = `As ${view.mixing.method} sees it in ${view.model}`;
  const note = isRead(view, places) ? `; ${readOf(view)} is read from it` : "";
  const part = partOf(view, word);
  const how = element("span", { class: "how", text: " Click a word for another." });
  at("mixing-by").replaceChildren(`${seen}${note}${part}.`, how);
  if (state.place === null || view.position === null || places.includes(view.position)) return;
  showPredictionAt(word);
  const text = `Back to ${view.names[view.position]}`;
  const about = { type: "button", class: "plain", text };
  at("mixing-by").append(" ", element("button", { ...about, onclick: () => pickHere(null) }));
}

// Models that predict at every token can be asked what they predict at this one.
function showPredictionAt({ places }) {
  if (!["causal", "masked", "token"].includes(model().kind)) return;
  const onclick = () =>
    document.dispatchEvent(new CustomEvent("explain-at", { detail: places.at(-1) }));
  const about = { type: "button", class: "plain", id: "explain-here", onclick };
  at("mixing-by").append(" ", element("button", { ...about, text: "Explain the prediction here" }));
}

// What a special token is doing here, one hover away.
function meaningOf(view, place, name) {
  if (!view.special[place]) return null;
  if (place !== view.position) return added(name);
  return `${added(name)} After the last layer, the model's prediction is read from it.`;
}

function centre(box, column) {
  const from = (node) => node.getBoundingClientRect().left;
  if (column) box.scrollLeft += from(column) - from(box) - box.clientWidth / 2;
}

const layerOf = (view) => Math.min(state.layer ?? Infinity, view.maps.length - 1);

// `made` has the rows of every text, whose scale is one.
function showLayer(view, made) {
  const layer = layerOf(view);
  const rows = made.get(view);
  showMixingTitle(view, picked(view));
  at("layer").value = layer + 1;
  at("layer-number").textContent = `${layer + 1} of ${rows.length}`;
  at("layer").setAttribute("aria-valuetext", `${layer + 1} of ${rows.length}`);
  for (const line of at("strip").querySelectorAll("tr[data-layer]")) {
    line.classList.toggle("on", Number(line.dataset.layer) === layer);
  }
  const scales = [...made].map(([each, mixed]) =>
    scaleOf(each[state.unit], mixed[layerOf(each)], each.special),
  );
  const scale = widest(scales);
  const options = { picked: placeOf(view), pick: pickHere, scale };
  const { texts } = paragraphs(view, state.unit, rows[layer], options);
  const text = element(
    "div",
    { class: `alti-${state.unit}` },
    ...texts,
    legend(scale, { unit: `${SHARES}, after layer ${layer + 1}` }),
  );
  at("mixed").replaceChildren(text);
  showGraph();
  const { places } = picked(view);
  document.dispatchEvent(new CustomEvent("layer-shown", { detail: { view, layer, places } }));
}

const boxes = () => [at("flow"), at("flow-other")];

// A graph for each text.
export function showGraph() {
  const shown = views.filter(Boolean);
  if (!shown.length) return;
  const threshold =
    state.threshold ?? Math.min(...shown.map((view) => suitable(view, picked(view))));
  at("threshold").max = STEPS.length - 1;
  at("threshold").value = STEPS.findLastIndex((step) => step <= threshold);
  at("threshold-number").textContent = `${threshold} %`;
  at("threshold").setAttribute("aria-valuetext", `${threshold} %`);
  boxes().forEach((box, i) => {
    box.hidden = at(`${box.id}-by`).hidden = !views[i];
    if (views[i]) drawGraph(views[i], box, threshold / 100);
  });
  const { method } = active().mixing;
  at("graph-by").textContent = `As ${method} sees it in ${active().model}; the wider, the more.`;
}

function drawGraph(view, box, threshold) {
  const { places, name } = picked(view);
  const last = layerOf(view);
  const scrolled = box.scrollLeft;
  const panel = views.indexOf(view);
  const options = { threshold, last, room: box.clientWidth, pick: (place) => pick(panel, place) };
  const { pictures, which } = graph(view, places, options);
  box.replaceChildren(...pictures);
  box.scrollLeft = scrolled;
  const target = element("em", { dir: "auto", text: name });
  const text = views.every(Boolean) ? ` in ${sideName(panel)}` : "";
  const whose = isRead(view, places) ? `, from which ${readOf(view)} is read,` : "";
  const note = `${whose} at layer ${last + 1}${text}; ${which}.`;
  at(`${box.id}-by`).replaceChildren("Highlighted lines lead to ", target, note);
}
