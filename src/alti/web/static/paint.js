// The text in pieces, in the colours of html.css. User input only goes through textContent.

const STEPS = 20;

export function element(name, about = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// An element of a drawing, SVG.
export function drawn(name, about, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(about)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function scoreOf(piece, scores) {
  return sum(piece.places.map((place) => scores[place]));
}

// Special tokens are left out, as in alti.views.segments: they often outweigh every word.
export function scaleOf(passages, scores, special) {
  const shown = passages.flat().filter((piece) => piece.places.length && !piece.special);
  const largest = Math.max(0, ...shown.map((piece) => Math.abs(scoreOf(piece, scores))));
  return { largest, signed: scores.some((score, i) => score < 0 && !special[i]) };
}

export function classOf(score, largest) {
  const level = largest ? Math.round(STEPS * Math.min(1, Math.abs(score) / largest)) : 0;
  return level ? `alti-${score > 0 ? "f" : "a"}${level}` : "";
}

export function number(score, scale) {
  const places = scale.largest ? 2 - Math.floor(Math.log10(scale.largest)) : 0;
  const size = Math.abs(score);
  const digits = places <= 8 ? size.toFixed(Math.max(3, places)) : size.toExponential(2);
  return (score < 0 ? "−" : scale.signed ? "+" : "") + digits;
}

// A paragraph for each text; `pick` is called with the first token of a clicked piece.
export function paragraphs(view, unit, scores, options) {
  const passages = view[unit];
  const scale = options.scale ?? scaleOf(passages, scores, view.special);
  const texts = passages.map((passage) => {
    const text = element("p", { class: "alti-text", dir: "auto", lang: "" });
    let previous = null;
    for (const piece of passage) {
      const joined = previous?.places.length && !previous.special && !piece.special;
      text.append(pieceNode(piece, joined, view, scores, scale, options));
      previous = piece;
    }
    return text;
  });
  moveWithArrows(texts);
  return { texts, scale };
}

function pieceNode(piece, joined, view, scores, scale, options) {
  const { picked = null, pick, label = "", changed } = options;
  if (!piece.places.length) return document.createTextNode(piece.text);
  const score = scoreOf(piece, scores);
  const shown = number(score, scale);
  const name = piece.text || piece.places.map((place) => view.names[place]).join(" ");
  const side = scale.signed && label && score ? ` ${score < 0 ? "against" : "for"} ${label}` : "";
  const classes = [
    piece.special ? "alti-special" : classOf(score, scale.largest),
    joined ? "alti-on" : "",
    piece.text ? "" : "added",
    changed?.has(piece) ? "changed" : "",
  ];
  const on = picked !== null && piece.places.includes(picked);
  const read = readAs(piece);
  const differs = changed?.has(piece) ? ", not in the other text" : "";
  const node = element("span", {
    class: classes.filter(Boolean).join(" ") || null,
    role: "button",
    tabindex: "-1",
    "aria-pressed": String(on),
    "aria-label": `${name}${read}${differs}, ${shown}${side}`,
    "data-score": shown,
    "data-place": piece.places[0],
    text: name,
    title: read ? unknownTitle(name, piece) : piece.special ? added(name) : null,
    onclick: () => pick(piece.places[0]),
  });
  node.append(...unknownMark(piece));
  return node;
}

// What the model read for a piece that it does not know: beside it, aloud, and one hover away.
export const unknownMark = ({ unknown }) =>
  unknown ? [element("small", { class: "alti-unknown", text: unknown })] : [];
export const readAs = ({ unknown }) => (unknown ? ` read as ${unknown}` : "");
const unknownTitle = (name, { unknown }) => `The model does not know ${name} and read ${unknown}`;

// What a token like [CLS] is.
export const added = (name) =>
  `${name} is a special token: the tokenizer adds it, or it marks a place; it is no word.`;

// One tab stop for all texts; the arrow keys move from piece to piece.
function moveWithArrows(texts) {
  const spans = texts.flatMap((text) => [...text.querySelectorAll("[role=button]")]);
  const first = spans.find((span) => span.getAttribute("aria-pressed") === "true") ?? spans[0];
  if (first) first.tabIndex = 0;
  spans.forEach((span, i) => {
    span.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step && spans[i + step]) {
        event.preventDefault();
        span.tabIndex = -1;
        spans[i + step].tabIndex = 0;
        spans[i + step].focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        span.click();
      }
    });
  });
}

// The ends of the scale, what its numbers are of, and what `left` is not on the text: for each
// its name, score and meaning.
export function legend(scale, { label = "", unit = "", left = [] } = {}) {
  const least = 0.0005 * (scale.largest || 1);
  const more = left
    .filter(([, score]) => Math.abs(score) >= least)
    .map(([name, score, title]) => ({ text: `${name} ${number(score, scale)}`, title }))
    .map(({ text, title }) => element("span", { class: "alti-rest", text, title: title || null }));
  const bare = unit.replace(` of ${label}`, "").replace(` on ${label}`, "");
  const named = scale.signed && label ? bare : unit; // the ramp has the label
  if (named) more.unshift(element("span", { class: "alti-unit", text: named }));
  if (!scale.largest) return element("p", { class: "alti-legend" }, "every score is 0", ...more);
  const high = number(scale.largest, scale);
  const hidden = { class: "alti-legend", "aria-hidden": "true" };
  if (!scale.signed) {
    return element("p", hidden, "0", element("span", { class: "alti-ramp" }), high, ...more);
  }
  const low = number(-scale.largest, scale);
  const ramp = element("span", { class: "alti-ramp alti-both" });
  return element("p", hidden, `${low} against`, ramp, `for ${label} ${high}`, ...more);
}
