// What if a word were not there, or another one: the model runs again, and what changes stands
// beside what a method predicted.

import { percent } from "/cards.js";
import { classOf, element, legend, number, readAs, unknownMark } from "/paint.js";
import { scatter } from "/scatter.js";
import { ask } from "/server.js";
import { model, state } from "/state.js";
import { newTicket, showNothing, watch } from "/waiting.js";

const TINY = 0.0005; // smaller probabilities are shown as logarithms
const KEPT = 8; // tries that stay on the card
const MANY = 60; // words in the text of two rows; of more, the plot is enough
const FEWEST = 4; // words whose order says something

const at = (id) => document.getElementById(id);
let about = null; // { question, place, name, by, units }
let key = ""; // what the tries are about
let tries = [];
let all = null; // what happens without each word
let pending = null;
let unit = "word"; // what is left out
let first = "word"; // what the text above is coloured by

// Show the card for a text or an answer; `place` is what was clicked: [text, character].
export function showWhatIf(given) {
  about = model().kind === "span" ? null : given; // an answer moves with what is left out
  at("whatif").hidden = about === null;
  if (about === null) return;
  if (!given.units.includes(unit) || given.units[0] !== first) unit = given.units[0];
  first = given.units[0];
  const now = JSON.stringify([given.question, given.method]);
  if (now !== key) {
    stop();
    [key, tries, all] = [now, [], null];
  }
  draw();
}

function stop() {
  pending?.abort();
  pending = null;
}

// Whether there was something to cancel.
export function cancelWhatIf() {
  if (pending === null) return false;
  stop();
  showNothing();
  say("Cancelled.");
  return true;
}

// ---- the card

function draw() {
  const { name, place, units } = about;
  const what = element("em", { dir: "auto", text: `“${short(name)}”` });
  const whole = unit === first ? [] : [`the ${unit} with `]; // what was clicked is a part of it
  const subject = place ? [...whole, what] : [`a ${unit}`];
  at("whatif-title").replaceChildren("What if ", ...subject, " were not there?");
  at("whatif-by").textContent =
    `${about.method} predicts, ${about.question.model ?? state.model} answers.`;
  at("whatif-how").textContent = place
    ? ""
    : `Click a ${units[0]} in the text above, or measure all of them.`;
  at("whatif-how").hidden = Boolean(place);
  at("without").disabled = at("try").disabled = at("instead").disabled = !place;
  at("without").textContent = `Without the ${unit}`;
  at("measure").textContent = `Measure every ${unit}`;
  at("whatif-units").hidden = units.length < 2;
  for (const radio of document.querySelectorAll("[name=left-out]")) {
    radio.parentNode.hidden = !units.includes(radio.value);
    radio.checked = radio.value === unit;
  }
  const shown = tries.filter(({ by }) => by === unit);
  at("tries").replaceChildren(...shown.map(tryNode));
  at("tries").hidden = !shown.length;
  at("measured").replaceChildren(...(all?.by === unit ? measuredNodes(all) : []));
}

const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);
const signed = (value, digits) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const log = (p) => Math.log(p).toFixed(2).replace("-", "−");

// A fall in words, so that a sign cannot be misread.
const fallOf = (fall, size, unit) =>
  `${fall < 0 ? "a rise" : "a fall"} of ${size}${unit ? ` ${unit}` : ""}`;

// A probability before and after, and how far it fell.
function changeOf(before, after) {
  if (before >= TINY) {
    const fall = 100 * (before - after);
    const small = Math.abs(fall) < 0.1;
    const size = Math.abs(fall).toFixed(small ? 3 : 1);
    const shown = (p) => (small ? `${(100 * p).toFixed(3)} %` : percent(p)); // not alike
    const text = `${shown(before)} → ${shown(after)}`;
    return { text, change: fallOf(fall, size, "points") };
  }
  const fall = after > 0 ? Math.log(before / after) : Infinity;
  const size = fall === Infinity ? "∞" : Math.abs(fall).toFixed(2);
  const text = `log p ${log(before)} → ${after > 0 ? log(after) : "−∞"}`;
  return { text, change: fallOf(fall, size, "of log p") };
}

// What a method said of it: how far what it explains would fall, or a number of its own.
function saidOf({ predicted, method, unit: of, falls }) {
  if (!predicted) return "no method predicts this";
  const [score] = predicted;
  if (!falls) return `${method} gives it ${signed(score, 3)}${of ? `, in ${of}` : ""}`;
  return `${method} predicted ${fallOf(score, Math.abs(score).toFixed(3), of ? `in ${of}` : "")}`;
}

// A word, with what the model read if it does not know it.
const named = ({ names, unknown }, i) => (unknown?.[i] ? `${names[i]} ${unknown[i]}` : names[i]);

function tryNode(found) {
  const { before, after, instead, label } = found;
  const name = named(found, 0);
  const { text, change } = changeOf(before, after[0]);
  const other = `“${instead}” instead of “${name}”`;
  const what = instead === undefined ? `without “${name}”` : other;
  return element(
    "li",
    {},
    element("span", { class: "what", dir: "auto", text: what }),
    element(
      "span",
      { class: "chances" },
      element("b", { text }),
      element("span", { text: ` for ${short(label)}` }),
    ),
    element("b", { class: after[0] < before ? "change less" : "change", text: change }),
    element("span", { class: "faint", text: saidOf(found) }),
  );
}

// ---- all words

function measuredNodes(found) {
  const { names, predicted, method, correlation, before, label, unit: of } = found;
  const falls = fallsOf(found);
  const many = `${names.length} ${found.by}${names.length > 1 ? "s" : ""}`;
  const rho = rankOf(correlation, names.length, many);
  const title = element("h3", {}, `Predicted and measured: ${rho}`);
  const inner = about.units.includes("document") && found.by !== "document";
  const where = inner ? " of the documents" : ""; // the question is not left out
  const why =
    `${many}${where}, for ${short(label)}. ${method} predicts in ${of || "numbers of its own"}, ` +
    `measured is ${falls.what}: compare the order, not the numbers.`;
  const plot = scatter(
    names.map((_, i) => ({ name: named(found, i), x: predicted[i], y: falls.values[i] })),
    {
      x: `predicted by ${method}`,
      y: falls.what,
      title: `Predicted against measured, ${rho}`,
    },
  );
  const rows = names.length <= MANY ? [rowsNode(found, falls)] : [];
  const side = element(
    "div",
    { class: "beside" },
    plot,
    element("div", {}, ...rows, tableNode(found, falls, before)),
  );
  return [title, element("p", { class: "faint", text: why }), side];
}

// How alike the orders are; of a few, chance would make them so.
function rankOf(correlation, count, many) {
  if (count < FEWEST) return `${many}, too few for a rank correlation`;
  if (correlation === null) return "no order to compare";
  return `rank correlation ρ = ${correlation.toFixed(2)}`.replace("-", "−");
}

// What is measured: the fall of the probability in points, of a tiny one that of its logarithm.
function fallsOf({ before, after, fall }) {
  if (before < TINY) {
    return { values: fall, what: "the fall of log p", unit: "of log p", digits: 2 };
  }
  const values = after.map((p) => 100 * (before - p));
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const digits = largest >= 10 ? 1 : largest >= 1 ? 2 : 3;
  return { values, what: "the fall of the probability, in points", unit: "points", digits };
}

function rowsNode(found, { values, unit: fallen }) {
  const { names, unknown, places, predicted, label, unit: of } = found;
  const follows = (i) =>
    places[i + 1]?.[0] === places[i][0] && places[i + 1][1] === places[i][2];
  const row = (name, scores, unit) => {
    const largest = scores.reduce((most, score) => Math.max(most, Math.abs(score)), 0);
    const scale = { largest, signed: scores.some((score) => score < 0) };
    const spans = names.flatMap((word, i) => {
      const shown = number(scores[i], scale);
      const piece = { unknown: unknown[i] };
      const title = `${word}${readAs(piece)}: ${shown}`;
      const about = { class: classOf(scores[i], largest) || null, title, text: word };
      return [element("span", about, ...unknownMark(piece)), follows(i) ? "" : " "];
    });
    const text = element("p", { class: "alti-text", dir: "auto", lang: "" }, ...spans);
    const scaled = legend(scale, { label: short(label), unit });
    return element(
      "div",
      { class: "alti-row" },
      element("h4", { class: "alti-name", text: name }),
      element("div", { class: "alti-view" }, text, scaled),
    );
  };
  const rows = [row("predicted", predicted, of), row("measured", values, fallen)];
  return element("div", { class: "alti bare" }, ...rows);
}

function tableNode(found, { values, digits, what }, before) {
  const { names, predicted, after } = found;
  const cell = (text, tag = "td") => element(tag, { text });
  const head = element(
    "tr",
    {},
    ...["", "predicted", `measured: ${what}`, "probability"].map((text) =>
      element("th", { scope: "col", text }),
    ),
  );
  const order = names.map((_, i) => i).sort((a, b) => values[b] - values[a]);
  const lines = order.map((i) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", dir: "auto", text: named(found, i) }),
      cell(signed(predicted[i], 3)),
      cell(signed(values[i], digits)),
      cell(changeOf(before, after[i]).text),
    ),
  );
  const table = element(
    "table",
    { class: "numbers" },
    element("thead", {}, head),
    element("tbody", {}, ...lines),
  );
  const about = { class: "scroll", tabindex: 0, role: "region", "aria-label": "All numbers" };
  const scroll = element("div", about, table);
  return element("details", {}, element("summary", { text: "All numbers" }), scroll);
}

// ---- requests

function say(message) {
  at("whatif-said").textContent = message;
  at("whatif-said").hidden = !message;
}

async function request(more) {
  stop();
  const controller = new AbortController();
  pending = controller;
  say("");
  const ticket = newTicket();
  const over = watch(ticket);
  const question = {
    model: state.model,
    ...about.question,
    method: about.method,
    by: unit,
    ...more,
    ticket,
  };
  try {
    const response = await ask("/api/whatif", question, controller.signal);
    const found = await response.json();
    return controller === pending ? { ...found, by: unit } : null;
  } catch (error) {
    if (controller === pending) say(error.message);
    return null;
  } finally {
    over();
    if (controller === pending) {
      pending = null;
      showNothing();
    }
  }
}

async function attempt(more) {
  const found = await request({ at: about.place, ...more });
  if (!found) return;
  tries = [found, ...tries].slice(0, KEPT);
  draw();
  const { text, change } = changeOf(found.before, found.after[0]);
  at("status").textContent = `${text}, ${change}`;
}

export function wireWhatIf() {
  at("without").addEventListener("click", () => attempt({}));
  at("instead-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (about.place) attempt({ instead: at("instead").value });
  });
  at("measure").addEventListener("click", async () => {
    const found = await request({ at: null });
    if (!found) return;
    all = found;
    draw();
    at("status").textContent = document.querySelector("#measured h3").textContent;
  });
  for (const radio of document.querySelectorAll("[name=left-out]")) {
    radio.addEventListener("change", () => {
      unit = radio.value;
      draw();
    });
  }
}
