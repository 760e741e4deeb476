// A prompt in the colours of what an answer rests on, and the list of the strongest pieces.

import { folds, isLong, strip } from "/overview.js";
import { asked } from "/prompt.js";
import { classOf, element, legend, number, readAs, unknownMark } from "/paint.js";

const RANKED = 10; // pieces in the list
const REST = 120; // milliseconds without a change, after which names and numbers follow the colours

let shown = null; // { view, scale }: what the prompt is coloured by
let made = new Map(); // the node of each piece that is on the page; those of a closed fold are not
let sections = null; // of a long prompt: its folds
let naming = null;

const scored = ({ pieces }) =>
  pieces.filter(({ score, special }) => score !== undefined && !special);

export function scaleOfPieces(view) {
  const sizes = scored(view).map(({ score }) => Math.abs(score));
  return { largest: sizes.reduce((most, size) => Math.max(most, size), 0), signed: view.signed };
}

// The prompt; a piece that is clicked is told to whoever listens. A long one is folded.
export function promptText(view) {
  const scale = scaleOfPieces(view);
  shown = { view, scale };
  made = new Map();
  sections = isLong(view) ? folds(view, nodesOf) : null;
  const text = element("p", { class: "alti-text prompted", dir: "auto", lang: "" });
  if (!sections) text.append(...nodesOf(0, view.pieces.length));
  const words = element("div", { class: "alti-words" }, sections?.node ?? text, ramp());
  const box = element("div", { class: "alti bare", id: "prompted" });
  box.append(...(sections ? [strip(view, scale, reveal)] : []), words);
  pickable(box);
  return box;
}

const nodesOf = (first, end) => Array.from({ length: end - first }, (_, n) => pieceNode(first + n));

const ramp = () => {
  const { view, scale } = shown;
  return legend(scale, { label: view.side, unit: view.unit, left: view.left });
};

// Colour the same prompt by other scores: what is seen follows at once, names soon after.
export function repaint(view) {
  const scale = scaleOfPieces(view);
  shown = { view, scale };
  for (const [i, node] of made) {
    node.className = classesOf(i);
  }
  if (sections) {
    sections.show(view);
    document.querySelector("#prompted .overview").replaceWith(strip(view, scale, reveal));
  }
  document.querySelector("#prompted .alti-legend").replaceWith(ramp());
  document.querySelector("#ranking").replaceWith(rankedList(view));
  clearTimeout(naming);
  naming = setTimeout(() => made.forEach((node, i) => named(node, i)), REST);
}

// One tab stop; the arrow keys move from piece to piece, and one that is chosen is told.
function pickable(box) {
  const all = () => [...box.querySelectorAll("[data-piece]")].filter((node) => node.offsetParent);
  const first = box.querySelector("[data-piece]");
  if (first) first.tabIndex = 0;
  const pick = (node) => {
    for (const other of box.querySelectorAll("[aria-pressed=true][data-piece]")) {
      other.setAttribute("aria-pressed", "false");
    }
    node.setAttribute("aria-pressed", "true");
    const detail = Number(node.dataset.piece);
    document.dispatchEvent(new CustomEvent("pick-piece", { detail }));
  };
  box.addEventListener("click", ({ target }) => {
    const node = target.closest("[data-piece]");
    if (node) pick(node);
  });
  box.addEventListener("keydown", (event) => {
    if (!document.activeElement.matches("[data-piece]")) return;
    const nodes = all();
    const i = nodes.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (i >= 0 && step && nodes[i + step]) {
      event.preventDefault();
      nodes[i].tabIndex = -1;
      nodes[i + step].tabIndex = 0;
      nodes[i + step].focus();
    } else if (i >= 0 && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      pick(nodes[i]);
    }
  });
}

const nameOf = ({ name, text }) => (name && text.length > 40 ? name : text || name);

// The colour of a piece, and whether its box begins where that of the piece before it ends.
function classesOf(i) {
  const { view, scale } = shown;
  const { score, special } = view.pieces[i];
  if (special) return "alti-special";
  const before = view.pieces[i - 1];
  const joined = before?.score !== undefined && !before.special;
  return [classOf(score, scale.largest), joined ? "alti-on" : ""].filter(Boolean).join(" ");
}

function pieceNode(i) {
  const { view } = shown;
  const piece = view.pieces[i];
  if (piece.score === undefined) {
    return piece.text.trim()
      ? element("span", { class: "unscored", title: unscored(view), text: piece.text })
      : piece.text;
  }
  const node = element("span", {
    class: classesOf(i) || null,
    role: "button",
    tabindex: "-1",
    "aria-pressed": "false",
    "data-piece": i,
    text: piece.text || piece.name,
  });
  node.append(...unknownMark(piece));
  named(node, i);
  made.set(i, node);
  return node;
}

// Messages and documents are divided into sentences and lines, and nothing that is around them.
function unscored({ by }) {
  const parts = { documents: "documents", chat: "messages" }[asked.form];
  if (!parts || !["sentence", "line"].includes(by)) return `This is in no ${by}: it has no colour.`;
  return `Only the ${parts} are divided into ${by}s: this has no colour.`;
}

// What is said of a piece: to a screen reader, and beside the pointer.
function named(node, i) {
  const { view, scale } = shown;
  const piece = view.pieces[i];
  const share = number(piece.score, scale);
  const side = scale.signed && piece.score ? (piece.score < 0 ? " against" : " for") : "";
  const name = `${nameOf(piece)}${readAs(piece)}`;
  node.ariaLabel = `${name}, ${share}${side}`;
  node.title = `${name}: ${share}${side}`;
  node.dataset.score = share;
}

// The pieces with the largest scores, whether they speak for the answer or against it.
export function rankedList(view) {
  const scale = scaleOfPieces(view);
  const order = view.pieces
    .map((piece, i) => ({ ...piece, i }))
    .filter(({ score, special }) => score !== undefined && !special)
    .sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
  const lines = order
    .filter(({ score }) => score)
    .slice(0, RANKED)
    .map((piece) => line(piece, scale));
  const text = view.heading ?? "What it rests on most";
  const about = { class: "ranked", id: "ranked", "aria-label": text };
  const title = element("h3", { text });
  const unit = element("small", { class: "faint", text: `, in ${view.unit}` });
  if (view.unit && !view.heading) title.append(unit);
  return element("div", { id: "ranking" }, title, element("ol", about, ...lines));
}

function line(piece, scale) {
  const text = (piece.text.trim() || piece.name || "").replaceAll(/\s+/g, " ");
  const full = element("span", { class: piece.score < 0 ? "full less" : "full on" });
  full.style.width = `${(100 * Math.abs(piece.score)) / (scale.largest || 1)}%`;
  const shown = number(piece.score, scale);
  const label = `Show ${text.slice(0, 80)} in the prompt, ${shown}`;
  const about = {
    type: "button",
    class: "name",
    "aria-label": label,
    onclick: () => reveal(piece.i),
  };
  const name = element("button", { ...about }, element("span", { dir: "auto", text }));
  const kind = piece.name && piece.text ? [element("small", { text: piece.name })] : [];
  name.append(...unknownMark(piece), ...kind);
  return element(
    "li",
    {},
    name,
    element("span", { class: "bar" }, full),
    element("span", { class: "share", text: shown }),
  );
}

// Bring a piece of the prompt into view, and show where it is for a moment.
export function reveal(i) {
  sections?.open(i);
  const node = made.get(i);
  if (!node) return;
  node.scrollIntoView({ block: "center", behavior: "instant" });
  node.classList.add("found");
  setTimeout(() => node.classList.remove("found"), 1500);
}
