// The heads of the layer that is shown: a small map of each, and the text in the colours of one.

import { pickHere } from "/cards.js";
import { drawer } from "/drawers.js";
import { halfOf } from "/mixing.js";
import { element, legend, paragraphs } from "/paint.js";
import { ask, unpacked } from "/server.js";
import { remember, state } from "/state.js";

const STEEP = 0.6; // small shares can be seen beside large ones, as in mixing.js
const at = (id) => document.getElementById(id);
let shown = null; // { view, places, maps, pick }

export function wireHeads() {
  const load = async ({ view, layer, places }, signal, ticket) => {
    if (view.answer) {
      const question = { ...view.asked, layer, place: places[0], ticket };
      const response = await ask("/api/answer_heads", question, signal);
      return mapsOf(await response.json());
    }
    const { model, text, text_pair } = view.asked;
    const question = { model, text, text_pair, layer, place: places[0], ticket };
    const response = await ask("/api/heads", question, signal);
    return mapsOf(await response.json());
  };
  const whole = new Set(); // views whose maps hold every row: another token needs no request
  const key = ({ view, layer, places }) =>
    JSON.stringify([view.asked, layer, whole.has(JSON.stringify(view.asked)) ? null : places[0]]);
  drawer("heads", {
    key,
    load: async (seen, ...waited) => {
      const maps = await load(seen, ...waited);
      if (maps.rows.length > 1) whole.add(JSON.stringify(seen.view.asked));
      return maps;
    },
    draw: ({ view, places }, maps) => {
      const pick = view.pick ?? pickHere;
      shown = { view: { ...view, ...maps.of }, maps, pick };
      shown.places = places.length ? places : [maps.place];
      draw();
    },
  });
  for (const radio of document.querySelectorAll("[name=of-head]")) {
    radio.addEventListener("change", () => {
      state.brings = radio.value;
      remember();
      draw();
    });
  }
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// For each head, rows × columns of numbers.
function mapsOf(sent) {
  const columns = sent.attention.shape[2];
  const [attention, contributions] = [unpacked(sent.attention), unpacked(sent.contributions)];
  return { ...sent, columns, attention, contributions };
}

function draw() {
  if (!shown || !at("heads").open) return;
  const { maps } = shown;
  for (const radio of document.querySelectorAll("[name=of-head]"))
    radio.checked = radio.value === state.brings;
  const head = Math.min(state.head ?? strongest(maps), maps.strengths.length - 1);
  const focused = document.activeElement?.dataset?.head;
  at("head-maps").replaceChildren(...maps.strengths.map((_, i) => small(i, i === head)));
  const scale = { largest: largestOf(maps), signed: false };
  const unit = `${unitOf()}, in every map; ${halfOf(scale)}`;
  at("head-scale").replaceChildren(...(maps.rows.length > 1 ? [legend(scale, { unit })] : []));
  if (focused !== undefined)
    at("head-maps").querySelector(`[data-head="${focused}"]`)?.focus({ preventScroll: true });
  showText(head);
}

const strongest = ({ strengths }) => strengths.indexOf(Math.max(...strengths));

// The row of a head for the picked token; the mean of several tokens' rows.
function rowOf(head) {
  const { maps, places } = shown;
  const values = maps[state.brings][head];
  const rows = places.map((place) => maps.rows.indexOf(place)).filter((row) => row >= 0);
  return Array.from(
    { length: maps.columns },
    (_, i) =>
      rows.reduce((sum, row) => sum + values[row * maps.columns + i], 0) / (rows.length || 1),
  );
}

function small(head, on) {
  const { maps, view } = shown;
  const row = rowOf(head);
  const most = view.names[row.indexOf(Math.max(...row))];
  const strength = maps.strengths[head].toFixed(3);
  const verb = state.brings === "attention" ? "looks most at" : "brings most of";
  const label = `Head ${head + 1}: ${strength} of the layer on average; here it ${verb} ${most}`;
  const about = { type: "button", class: "head", "data-head": head, "aria-pressed": String(on) };
  const choose = () => {
    state.head = head;
    remember();
    draw();
  };
  const name = element("span", {}, element("b", { text: `head ${head + 1}` }), ` ${strength}`);
  const button = element("button", {
    ...about,
    "aria-label": label,
    title: label,
    onclick: choose,
  });
  if (maps.rows.length > 1) button.append(picture(head));
  button.append(name);
  return button;
}

const unitOf = () =>
  state.brings === "attention" ? "attention, shares of 1" : "shares of what the token becomes";

const largestOf = (maps) =>
  Math.max(...maps[state.brings].map((map) => map.reduce((a, b) => Math.max(a, b), 0)));

// A pixel for each pair of tokens, in the colour of the button, on one scale for all heads.
function picture(head) {
  const { maps, places } = shown;
  const canvas = element("canvas", {
    width: maps.columns,
    height: maps.rows.length,
    "aria-hidden": "true",
  });
  const values = maps[state.brings][head];
  const largest = largestOf(maps) || 1;
  const colour = getComputedStyle(at("head-maps"))
    .getPropertyValue("color")
    .match(/\d+/g)
    .map(Number);
  const image = new ImageData(maps.columns, maps.rows.length);
  values.forEach((value, i) => {
    image.data.set([...colour.slice(0, 3), 255 * (value / largest) ** STEEP], 4 * i);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const row = maps.rows.indexOf(places[0]);
  const frame = element("span", { class: "frame" }, canvas);
  const mark = element("i", {});
  mark.style.top = `${(100 * row) / maps.rows.length}%`;
  mark.style.height = `${100 / maps.rows.length}%`;
  frame.append(mark);
  return frame;
}

function showText(head) {
  const { view, maps, places, pick } = shown;
  const row = rowOf(head);
  const token = view.names[places[0]];
  const isAttention = state.brings === "attention";
  const at_row = maps.rows.indexOf(places[0]);
  const share = isAttention ? 1 : maps.shares[at_row][head];
  const what = isAttention ? "Where it looks from" : "What it brings to";
  const name = element("em", { dir: "auto", text: token });
  const own = isAttention
    ? ""
    : `: ${share.toFixed(3)} of it; ${maps.residual[at_row].toFixed(3)} comes through no head`;
  const which = `Head ${head + 1} of layer ${maps.layer + 1} of ${view.model}. ${what} `;
  at("head-by").replaceChildren(which, name, `${own}.`);
  const { texts, scale } = paragraphs(view, state.unit, row, { picked: places[0], pick });
  at("head-text").replaceChildren(
    element("div", { class: `alti-${state.unit}` }, ...texts, legend(scale, { unit: unitOf() })),
  );
}
