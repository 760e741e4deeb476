// A long prompt at a glance: a strip with all of it, and its sections folded.

import { classOf, element, number } from "/paint.js";

const LONG = 1500; // characters from which a prompt is folded
const CELLS = 160; // of the strip
const OPEN = 2; // sections that are open at first, the strongest
const WORDS = 9; // at the beginning of a section that has no name

export const isLong = ({ pieces, sections }) => sections.length > 1 && pieces.at(-1).end > LONG;

// All of the prompt in one line: each cell is as strong as the strongest piece in it. It is for the
// eye and the mouse: by keyboard, and read aloud, the sections below it say and do the same.
export function strip(view, scale, reveal) {
  const cells = cellsOf(view);
  const about = { class: "overview alti", "aria-hidden": "true" };
  const nodes = cells.map(({ score, piece }) => {
    const classes = classOf(score, scale.largest) || null;
    const title = piece ? `${nameOf(piece)}: ${number(score, scale)}` : null;
    return element("span", { class: classes, title, "data-cell": piece?.i ?? null });
  });
  const line = element("div", about, ...nodes);
  line.addEventListener("click", ({ target }) => {
    if (target.dataset.cell !== undefined) reveal(Number(target.dataset.cell));
  });
  return line;
}

const nameOf = ({ text, name }) => (text.trim() || name || "").slice(0, 60);

function cellsOf({ pieces }) {
  const end = pieces.at(-1)?.end || 1;
  const cells = Array.from({ length: Math.min(CELLS, end) }, () => ({ score: 0, piece: null }));
  pieces.forEach((piece, i) => {
    if (piece.score === undefined || piece.special) return;
    const from = Math.floor((piece.start / end) * cells.length);
    const to = Math.max(from, Math.ceil((piece.end / end) * cells.length) - 1);
    for (let c = from; c <= Math.min(to, cells.length - 1); c++) {
      if (cells[c].piece && Math.abs(cells[c].score) >= Math.abs(piece.score)) continue;
      cells[c] = { score: piece.score, piece: { ...piece, i } };
    }
  });
  return cells;
}

// The sections of a long prompt, each a fold; `fill(first, end)` makes its nodes when it opens.
export function folds(view, fill) {
  const order = view.sections.map((section, i) => ({ ...section, i }));
  const strongest = [...order].sort((a, b) => Math.abs(b.score) - Math.abs(a.score));
  const opened = new Set(strongest.slice(0, OPEN).map(({ i }) => i));
  const nodes = strongest.map((section) => fold(view, section, opened.has(section.i), fill));
  const box = element("div", { class: "folds" }, ...nodes);
  const node = element("div", {}, orderButton(box, nodes, strongest, view.method), box);
  const open = (piece) => {
    const at = strongest.findIndex(({ first, end }) => piece >= first && piece < end);
    if (at < 0) return;
    nodes[at].open = true;
    nodes[at].fill();
  };
  const show = ({ sections, signed }) => {
    const largest = Math.max(...sections.map(({ score }) => Math.abs(score)), 0);
    strongest.forEach(({ i }, n) => weigh(nodes[n], sections[i].score, { largest, signed }));
  };
  show(view);
  return { node, open, show };
}

// The bar and the number of a section.
function weigh(node, score, scale) {
  const full = node.querySelector(".full");
  full.className = score < 0 ? "full less" : "full on";
  full.style.width = `${(100 * Math.abs(score)) / (scale.largest || 1)}%`;
  node.querySelector(".share").textContent = number(score, scale);
}

// The strongest section comes first, until the order of the text is asked for.
function orderButton(box, nodes, sections, method) {
  const button = element("button", {
    type: "button",
    class: "plain",
    id: "order",
    "aria-pressed": "false",
  });
  const show = (inText) => {
    const rank = nodes.map((node, n) => ({ node, i: sections[n].i, n }));
    rank.sort((a, b) => (inText ? a.i - b.i : a.n - b.n));
    box.append(...rank.map(({ node }) => node));
    button.textContent = inText ? "Strongest sections first" : "In the order of the text";
    button.setAttribute("aria-pressed", String(inText));
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-pressed") !== "true"));
  show(false);
  const note = `${sections.length} sections, the strongest by ${method} first: `;
  return element("p", { class: "faint" }, note, button);
}

function fold(view, section, isOpen, fill) {
  const { first, end, i } = section;
  const text = element("p", { class: "alti-text prompted", dir: "auto", lang: "" });
  const isBlank = ({ text: own, score: scored }) => scored === undefined && !own.trim();
  const last = view.pieces.slice(first, end).findLastIndex((piece) => !isBlank(piece));
  const make = () => {
    if (!text.childNodes.length) text.append(...fill(first, first + last + 1));
  };
  const head = element(
    "summary",
    {},
    element("span", { class: "name", dir: "auto", text: titleOf(view, section) }),
    element("span", { class: "bar" }, element("span", { class: "full" })),
    element("span", { class: "share" }),
  );
  const node = element("details", { class: "fold", "data-section": i }, head, text);
  node.addEventListener("toggle", make);
  node.fill = make;
  if (isOpen) {
    node.open = true;
    make();
  }
  return node;
}

function titleOf({ pieces }, { name, first, end }) {
  if (name) return name;
  const text = pieces
    .slice(first, Math.min(end, first + 40))
    .map(({ text }) => text)
    .join("");
  const words = text.trim().split(/\s+/);
  return words.length > WORDS ? `${words.slice(0, WORDS).join(" ")} …` : words.join(" ");
}
