// The text in its pieces, on the colours of html.css. Whatever a user typed goes through textContent.

const STEPS = 20;

export function element(name, about = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(about)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

export function scoreOf(piece, scores) {
  return sum(piece.places.map((place) => scores[place]));
}

// As alti.colours.Scale: special tokens do not count, they often outweigh every word.
export function scaleOf(passages, scores, special) {
  const shown = passages.flat().filter((piece) => piece.places.length && !piece.special);
  const largest = Math.max(0, ...shown.map((piece) => Math.abs(scoreOf(piece, scores))));
  return { largest, signed: scores.some((score, i) => score < 0 && !special[i]) };
}

export function classOf(score, largest) {
  const level = largest ? Math.round(STEPS * Math.max(-1, Math.min(1, score / largest))) : 0;
  return level ? `alti-${level > 0 ? "f" : "a"}${Math.abs(level)}` : "";
}

export function number(score, scale) {
  const places = scale.largest ? 2 - Math.floor(Math.log10(scale.largest)) : 0;
  const shown = places <= 8 ? Math.abs(score).toFixed(Math.max(3, places)) : Math.abs(score).toExponential(2);
  return (score < 0 ? "−" : scale.signed ? "+" : "") + shown;
}

// One paragraph for each text; `pick` is called with the piece that is clicked.
export function paragraphs(view, unit, scores, { picked = null, pick, said = "" }) {
  const passages = view[unit];
  const scale = scaleOf(passages, scores, view.special);
  const made = passages.map((passage) => {
    const text = element("p", { class: "alti-text", dir: "auto", lang: "" });
    let before = null;
    for (const piece of passage) {
      text.append(drawn(piece, before, view, scores, scale, picked, pick, said));
      before = piece;
    }
    return text;
  });
  roving(made);
  return { made, scale };
}

function drawn(piece, before, view, scores, scale, picked, pick, said) {
  if (!piece.places.length) return document.createTextNode(piece.text);
  const score = scoreOf(piece, scores);
  const shown = number(score, scale);
  const joined = before && before.places.length && !before.special && !piece.special;
  const name = piece.text || piece.places.map((place) => view.names[place]).join(" ");
  const side = scale.signed && said && score ? ` ${score < 0 ? "against" : "for"} ${said}` : "";
  const names = [
    piece.special ? "alti-special" : classOf(score, scale.largest),
    joined ? "alti-on" : "",
    piece.text ? "" : "added",
  ];
  const on = picked !== null && piece.places.includes(picked);
  return element("span", {
    class: names.filter(Boolean).join(" ") || null,
    role: "button",
    tabindex: "-1",
    "aria-pressed": String(on),
    "aria-label": `${name}, ${shown}${side}`,
    "data-score": shown,
    "data-place": piece.places[0],
    text: name,
    onclick: () => pick(piece.places[0]),
  });
}

// One tab stop for a text; arrows go from piece to piece.
function roving(texts) {
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

// `rest` is what the special tokens hold, which a view of words does not show.
export function legend(scale, said, rest = 0) {
  const shown = Math.abs(rest) >= 0.0005 * (scale.largest || 1) ? `special tokens ${number(rest, scale)}` : "";
  const more = shown ? [element("span", { class: "alti-rest", text: shown })] : [];
  if (!scale.largest) return element("p", { class: "alti-legend" }, "every score is 0", ...more);
  const high = number(scale.largest, scale);
  const hidden = { class: "alti-legend", "aria-hidden": "true" };
  if (!scale.signed) return element("p", hidden, "0", element("span", { class: "alti-ramp" }), high, ...more);
  const ramp = element("span", { class: "alti-ramp alti-both" });
  return element("p", hidden, `${number(-scale.largest, scale)} against`, ramp, `for ${said} ${high}`, ...more);
}
