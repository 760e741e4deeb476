// A prompt in the colours of what an answer rests on, and the list of the strongest pieces.

import { folds, isLong, strip } from "/overview.js";
import { classOf, element, legend, number, readAs, unknownMark } from "/paint.js";

const RANKED = 10; // pieces in the list
const AGAINST = 3; // of those that speak against it

const scored = ({ pieces }) => pieces.filter(({ score, special }) => score !== undefined && !special);

export function scaleOfPieces(view) {
  const sizes = scored(view).map(({ score }) => Math.abs(score));
  return { largest: sizes.reduce((most, size) => Math.max(most, size), 0), signed: view.signed };
}

// The prompt; a piece that is clicked is told to whoever listens. A long one is folded.
export function promptText(view, scale, below) {
  const nodeOf = (i) => pieceNode(view.pieces[i], i, scale);
  const nodes = (first, end) =>
    Array.from({ length: end - first }, (_, n) => nodeOf(first + n));
  if (isLong(view)) {
    const { node, nodes: sections, order } = folds(view, scale, nodes);
    opened = (i) => {
      const at = order.findIndex(({ first, end }) => i >= first && i < end);
      if (at < 0) return;
      sections[at].open = true;
      sections[at].fill();
    };
    return around(node, strip(view, scale, reveal), below);
  }
  opened = () => {};
  const text = element("p", { class: "alti-text prompted", dir: "auto", lang: "" });
  text.append(...nodes(0, view.pieces.length));
  return around(text, null, below);
}

let opened = () => {}; // opens the section that a piece is in
let ownLegend = null;

function around(node, before, below) {
  ownLegend = below;
  const box = element("div", { class: "alti bare", id: "prompted" });
  box.append(...(before ? [before] : []), element("div", { class: "alti-words" }, node, below));
  pickable(box);
  return box;
}

// Colour the prompt by a layer: a map from the first characters of its pieces to shares; null: by
// the scores of the method. What is said of the colours changes with them.
export function repaint(view, scale, row, layer) {
  const seen = row ? { ...view, signed: false, pieces: view.pieces.map((piece) => shareOf(piece, row)) } : view;
  const shown = row ? scaleOfPieces(seen) : scale;
  for (const node of document.querySelectorAll("#prompted [data-piece]")) {
    const piece = seen.pieces[node.dataset.piece];
    const about = aboutOf(piece, shown);
    for (const [name, value] of Object.entries(about)) node.setAttribute(name, value);
    if (!piece.special) node.className = classOf(piece.score, shown.largest);
  }
  document.querySelector("#prompted .overview")?.replaceWith(strip(seen, shown, reveal));
  const unit = `shares of 1, after layer ${layer}, as alti sees it`;
  document.querySelector("#prompted .alti-legend").replaceWith(row ? legend(shown, { unit }) : ownLegend);
}

const shareOf = (piece, row) =>
  piece.score === undefined ? piece : { ...piece, score: row.get(piece.start) ?? 0 };

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

// What is said of a piece and its score.
function aboutOf(piece, scale) {
  const shown = number(piece.score, scale);
  const side = scale.signed && piece.score ? (piece.score < 0 ? " against" : " for") : "";
  const name = `${nameOf(piece)}${readAs(piece)}`;
  return { "aria-label": `${name}, ${shown}${side}`, title: `${name}: ${shown}${side}`, "data-score": shown };
}

function pieceNode(piece, i, scale) {
  if (piece.score === undefined) {
    return piece.text.trim() ? element("span", { class: "unscored", text: piece.text }) : piece.text;
  }
  const classes = [piece.special ? "alti-special" : classOf(piece.score, scale.largest)];
  const node = element("span", {
    class: classes.filter(Boolean).join(" ") || null,
    role: "button",
    tabindex: "-1",
    "aria-pressed": "false",
    ...aboutOf(piece, scale),
    "data-piece": i,
    text: piece.text || piece.name,
  });
  node.append(...unknownMark(piece));
  return node;
}

// The pieces with the highest scores, and those that speak most against the answer.
export function rankedList(view, scale) {
  const order = view.pieces
    .map((piece, i) => ({ ...piece, i }))
    .filter(({ score, special }) => score !== undefined && !special)
    .sort((a, b) => b.score - a.score);
  const best = order.filter(({ score }) => score > 0).slice(0, RANKED);
  const worst = order.filter(({ score }) => score < 0).slice(-AGAINST);
  const lines = [...best, ...worst].map((piece) => line(piece, scale));
  const about = { class: "ranked", id: "ranked", "aria-label": "What it rests on most" };
  const title = element("h3", { text: "What it rests on most" });
  if (view.unit) title.append(element("small", { class: "faint", text: `, in ${view.unit}` }));
  return element("div", {}, title, element("ol", about, ...lines));
}

function line(piece, scale) {
  const text = (piece.text.trim() || piece.name || "").replaceAll(/\s+/g, " ");
  const full = element("span", { class: piece.score < 0 ? "full less" : "full on" });
  full.style.width = `${(100 * Math.abs(piece.score)) / (scale.largest || 1)}%`;
  const shown = number(piece.score, scale);
  const label = `Show ${text.slice(0, 80)} in the prompt, ${shown}`;
  const about = { type: "button", class: "name", "aria-label": label, onclick: () => reveal(piece.i) };
  const name = element("button", { ...about }, element("span", { dir: "auto", text }));
  const kind = piece.name && piece.text ? [element("small", { text: piece.name })] : [];
  name.append(...unknownMark(piece), ...kind);
  return element("li", {}, name, element("span", { class: "bar" }, full), element("span", { class: "share", text: shown }));
}

// Bring a piece of the prompt into view, and show where it is for a moment.
export function reveal(i) {
  opened(i);
  const node = document.querySelector(`#prompted [data-piece="${i}"]`);
  if (!node) return;
  node.scrollIntoView({ block: "center", behavior: "instant" });
  node.classList.add("found");
  setTimeout(() => node.classList.remove("found"), 1500);
}
