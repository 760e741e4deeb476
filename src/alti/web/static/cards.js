// The cards below the question: the explanations, what a token is made of, and the graph.

import { graph } from "/graph.js";
import { rowsOf, strip } from "/mixing.js";
import { element, legend, paragraphs } from "/paint.js";
import { method, remember, rememberSoon, state } from "/state.js";

const BARS = 5; // classes; of more, the most probable
const at = (id) => document.getElementById(id);
const views = [null, null];
let moved = true; // the picked token is to be scrolled to

export const quoted = (label) => (label.trim() === label ? label : `“${label}”`);
export const classesShown = () => active()?.classes ?? [];
export const targetShown = () => active()?.target ?? null;

// New answers of the server, one for each text.
export function fill(answers) {
  views.splice(0, 2, answers[0] ?? null, answers[1] ?? null);
  moved = true;
  show();
}

const active = () => views[state.panel] ?? views.find(Boolean);

export function show() {
  remember();
  const shown = views.filter(Boolean);
  at("results").replaceChildren(...shown.map((view) => result(view, views.indexOf(view))));
  at("results").classList.toggle("two", shown.length > 1);
  at("status").textContent = shown.map((view) => [view.label, chance(view)].filter(Boolean).join(" ")).join("; ");
  at("mixing").hidden = at("graph").hidden = !shown.length;
  if (shown.length) showMixing(active());
}

// ---- the explanations of a text

function result(view, panel) {
  const rows = view.rows.map((row) => resultRow(view, panel, row));
  return element("section", { class: "alti result", "aria-label": "Explanation" }, prediction(view), ...rows);
}

function resultRow(view, panel, row) {
  const label = view.label ?? "";
  const picked = view === active() ? placeOf(view) : null;
  const { made, scale } = paragraphs(view, state.unit, row.scores, {
    picked,
    said: label,
    pick: (place) => pick(panel, place),
  });
  const name = element("h3", { class: "alti-name", title: method(row.method).what, text: row.method });
  const blind = view.rows.length > 1 && view.classes.length > 1 && !method(row.method).classes;
  if (blind) name.append(element("small", { text: "the same for every class" }));
  const rest = state.unit === "words" ? restOf(view, row.scores) : 0;
  const text = element("div", { class: `alti-${state.unit}` }, ...made, legend(scale, label, rest));
  return element(
    "div",
    { class: "alti-row", "data-method": row.method, "data-home": `${panel} ${row.method}` },
    name,
    element("div", { class: "alti-view" }, text),
  );
}

const restOf = (view, scores) => scores.reduce((sum, score, i) => (view.special[i] ? sum + score : sum), 0);

function prediction(view) {
  const head = element("header");
  if (view.label !== null) {
    const says = element("p", { class: "alti-says" }, element("strong", { dir: "auto", text: quoted(view.label) }));
    says.append(element("span", { text: chance(view) }));
    const best = view.classes[0];
    if (best && best.index !== view.target) {
      says.append(element("span", { text: `asked for; the prediction is ${quoted(best.label)}` }));
    }
    head.append(says);
  }
  if (view.classes.length > 1) head.append(bars(view));
  return head;
}

const chance = (view) => (view.probability === null ? "" : percent(view.probability));

function percent(share) {
  const shown = (100 * share).toFixed(1);
  if (shown === "100.0" && share < 1) return ">99.9 %";
  return shown === "0.0" && share > 0 ? "<0.1 %" : `${shown} %`;
}

function bars(view) {
  const few = view.classes.length <= BARS;
  const shown = few ? view.classes.toSorted((a, b) => a.index - b.index) : view.classes.slice(0, BARS);
  const lines = shown.map((one) => {
    const full = element("span", { class: one.index === view.target ? "full on" : "full" });
    full.style.width = `${100 * one.probability}%`;
    return element(
      "li",
      {},
      element("span", { class: "name", dir: "auto", text: quoted(one.label) }),
      element("span", { class: "bar" }, full),
      element("span", { class: "share", text: percent(one.probability) }),
    );
  });
  return element("ul", { class: "bars", "aria-label": "Probabilities" }, ...lines);
}

// ---- the token that was clicked

function placeOf(view) {
  if (state.place !== null && state.place < view.names.length) return state.place;
  return view.position ?? Math.max(0, view.special.indexOf(false));
}

// In words, a click picks all tokens of the word.
function picked(view) {
  const place = placeOf(view);
  const piece = view[state.unit].flat().find((one) => one.places.includes(place));
  return { places: piece?.places ?? [place], name: piece?.text || view.names[place] };
}

function pick(panel, place) {
  const home = document.activeElement.closest("[data-home]")?.dataset.home;
  Object.assign(state, { panel, place });
  moved = home !== "strip" && home !== "flow";
  show();
  const again = home && document.querySelector(`[data-home="${CSS.escape(home)}"] [data-place="${place}"]`);
  if (again) again.focus({ preventScroll: true });
}

const pickHere = (place) => pick(views.indexOf(active()), place);

function showMixing(view) {
  const { places, name } = picked(view);
  const read = places.includes(view.position) ? "; the prediction is read from it" : "";
  at("mixing-title").replaceChildren("What ", element("em", { dir: "auto", text: name }), " is made of");
  at("mixing-by").textContent = `As ${view.mixing.method} sees it${read}. Click a word for another.`;
  if (state.place !== null && view.position !== null && !read) {
    const back = { type: "button", class: "plain", text: `Back to ${view.names[view.position]}` };
    at("mixing-by").append(" ", element("button", { ...back, onclick: () => pickHere(null) }));
  }
  const rows = rowsOf(view.maps, places, view.names.length, state.since);
  const choose = (layer) => {
    state.layer = layer;
    rememberSoon();
    showLayer(view, rows);
  };
  const room = at("strip").clientWidth;
  at("strip").replaceChildren(strip(view, rows, { places, room, choose, pick: pickHere }));
  at("layer").max = rows.length;
  at("layer").oninput = () => choose(Number(at("layer").value) - 1);
  showLayer(view, rows);
  if (moved) for (const box of [at("strip"), at("flow")]) centre(box, box.querySelector(".on[data-place]"));
  moved = false;
}

function centre(box, column) {
  const from = (node) => node.getBoundingClientRect().left;
  if (column) box.scrollLeft += from(column) - from(box) - box.clientWidth / 2;
}

const layerOf = (view) => Math.min(state.layer ?? Infinity, view.maps.length - 1);

function showLayer(view, rows) {
  const layer = layerOf(view);
  at("layer").value = layer + 1;
  at("layer-number").textContent = `${layer + 1} of ${rows.length}`;
  at("layer").setAttribute("aria-valuetext", `${layer + 1} of ${rows.length}`);
  for (const line of at("strip").querySelectorAll("tr[data-layer]")) {
    line.classList.toggle("on", Number(line.dataset.layer) === layer);
  }
  const { made, scale } = paragraphs(view, state.unit, rows[layer], { picked: placeOf(view), pick: pickHere });
  at("mixed").replaceChildren(element("div", { class: `alti-${state.unit}` }, ...made, legend(scale, "")));
  showGraph();
}

export function showGraph() {
  const view = active();
  if (!view) return;
  const { places, name } = picked(view);
  const last = layerOf(view);
  const fitting = Math.max(1, Math.min(8, Math.round(150 / view.names.length))); // in long texts, shares are small
  const threshold = state.threshold ?? fitting;
  at("threshold").value = threshold;
  at("threshold-number").textContent = `${threshold} %`;
  at("threshold").setAttribute("aria-valuetext", `${threshold} %`);
  const box = at("flow");
  const kept = box.scrollLeft;
  const asked = { threshold: threshold / 100, last, room: box.clientWidth, pick: pickHere };
  const { pictures, full } = graph(view, places, asked);
  box.replaceChildren(...pictures);
  box.scrollLeft = kept;
  const more = full ? ` Only the ${full} strongest are drawn.` : "";
  const target = element("em", { dir: "auto", text: name });
  at("graph-by").replaceChildren("Blue leads to ", target, ` at layer ${last + 1}; the wider, the more.${more}`);
}
