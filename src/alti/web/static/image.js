// An image: which of its patches the prediction rests on.

import { percent } from "/cards.js";
import { drawn, element, legend, number } from "/paint.js";
import { ask, encoded } from "/server.js";
import { held, link, method, model, readsClass, state } from "/state.js";
import { newTicket, watch } from "/waiting.js";

const SHOWN = 5; // classes
const NAMED = 3; // patches
const at = (id) => document.getElementById(id);
let image = null; // in base64

export const isPicturing = () => model().kind === "image" && link.missing === null;

export function wireImage(refresh) {
  const open = async (file) => {
    if (!file || !isPicturing()) return;
    image = await encoded(file);
    at("image-name").textContent = file.name;
    refresh();
  };
  at("image-file").addEventListener("change", ({ target }) => open(target.files[0]));
  at("picturing").addEventListener("dragover", (event) => event.preventDefault());
  at("picturing").addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation(); // it is no set of texts
    open(event.dataTransfer.files[0]);
  });
  addEventListener("paste", ({ clipboardData }) => open(clipboardData?.files[0]));
}

// A model that reads images has no fields for texts.
export function showImageControls() {
  const on = isPicturing();
  document.body.classList.toggle("picturing", on);
  at("picturing").hidden = !on;
  if (!on) at("pictured").hidden = true;
}

export async function showPicture(signal) {
  if (image === null) return;
  const ticket = newTicket();
  const allowed = state.methods.filter((spec) => !held().includes(spec));
  const methods = allowed.length ? allowed : ["alti"];
  const target = readsClass() ? state.target : null;
  const against = readsClass() ? state.against : null;
  const question = { model: state.model, image, methods, target, against, ticket };
  const stopWatching = watch(ticket);
  try {
    const view = await (await ask("/api/picture", question, signal)).json();
    if (!signal.aborted) draw(view);
  } finally {
    stopWatching();
  }
}

function draw(view) {
  const title = element("h2", { id: "pictured-title", text: `${view.label} ` });
  title.append(
    element("small", { class: "faint", text: `p = ${percent(view.probability)} · ${view.model}` }),
  );
  const classes = view.classes
    .slice(0, SHOWN)
    .map(({ label, probability }) => `${label}: ${percent(probability)}`);
  const seen = element("figure", { class: "patches" });
  seen.append(
    element("img", { src: view.seen, alt: "What the model saw" }),
    element(
      "figcaption",
      {},
      "what the model saw",
      element("p", { class: "faint", text: classes.join(" · ") }),
    ),
  );
  const figures = view.rows.map((row) => figure(view, row));
  at("pictured").replaceChildren(title, element("div", { class: "pictures" }, seen, ...figures));
  at("pictured").hidden = false;
}

function figure(view, row) {
  const scores = row.scores.flat();
  const scale = {
    largest: Math.max(...scores.map(Math.abs)),
    signed: scores.some((score) => score < 0),
  };
  const best = strongest(row.scores).map(({ name, score }) => `${name}: ${number(score, scale)}`);
  const [rows, columns] = [row.scores.length, row.scores[0].length];
  const size = `${rows} by ${columns} patches`;
  const about = `${row.method}: ${size}; the strongest are ${best.join("; ")}`;
  const caption = element(
    "figcaption",
    {},
    element("b", { text: row.method, title: method(row.method).what }),
  );
  caption.append(
    element(
      "div",
      { class: "alti bare" },
      legend(scale, { label: row.side, unit: row.unit, left: row.left }),
    ),
    element("p", { class: "faint", text: best.join(" · ") }),
  );
  return element("figure", { class: "patches" }, overlay(view, row.scores, scale, about), caption);
}

// The picture in grey under the colours of its patches.
function overlay({ faded, size, colours, strongest: most }, scores, scale, about) {
  const [width, height] = size;
  const [across, down] = [width / scores[0].length, height / scores.length];
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": about });
  drawn("image", { href: faded, width, height, "image-rendering": "pixelated" }, svg);
  scores.forEach((row, y) =>
    row.forEach((score, x) => {
      const patch = { x: x * across, y: y * down, width: across, height: down };
      const share = scale.largest ? Math.abs(score) / scale.largest : 0;
      const fill = { fill: colours[score < 0 ? 1 : 0], "fill-opacity": most * share };
      const rect = drawn("rect", { ...patch, ...fill }, svg);
      drawn("title", {}, rect, `${place(y, x)}: ${number(score, scale)}`);
    }),
  );
  return svg;
}

const place = (row, column) => `row ${row + 1}, column ${column + 1}`;

function strongest(scores) {
  const all = scores.flatMap((row, y) => row.map((score, x) => ({ name: place(y, x), score })));
  return all.sort((a, b) => b.score - a.score).slice(0, NAMED);
}
