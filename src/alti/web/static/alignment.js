// Source and target side by side, with lines between words that come from each other.

import { drawn, element } from "/paint.js";

const ROW = 30; // pixels of a word
const WIDE = 120; // pixels between the columns
const SAMPLES = [0.25, 0.5, 1]; // shares in the legend
const widthOf = (share) => (0.8 + 3.2 * share).toFixed(2); // pixels of a line

// `choose(part)` is called with the tokens of a target word that is clicked: [first, end].
export function alignment({ source, target, links, shares, from_source, parts, method }, choose) {
  const lines = links.map(([i, j]) => ({ i, j, share: shares[j][i] }));
  const svg = picture(lines, Math.max(source.length, target.length));
  const light = (which, number) => {
    for (const line of svg.children) {
      line.classList.toggle("on", line.dataset[which] === String(number));
    }
  };
  const of = (j) => lines.filter((line) => line.j === j).map(({ i }) => source[i]);
  const left = column("Source", source, (word, i) => wordNode(word, null, () => light("i", i)));
  const right = column("Target", target, (word, j) => {
    const from = of(j).join(", ");
    const name = from ? `${word}, from ${from}` : `${word}, from no word of the source`;
    return wordNode(
      word,
      name,
      () => light("j", j),
      () => choose(parts[j]),
    );
  });
  const mean = from_source.reduce((sum, share) => sum + share, 0) / (from_source.length || 1);
  const note =
    `As ${method} sees it; the wider a line, the more. ${(100 * mean).toFixed(0)} % of what the ` +
    "target rests on is the source, the rest what was written before.";
  const how = element("span", { class: "how", text: " Click a word of the target to explain it." });
  return element(
    "div",
    { id: "alignment" },
    element("h3", { text: "Which word comes from which" }),
    element("p", { class: "faint" }, note, how),
    element("div", { class: "aligned" }, left, svg, right),
    element("p", { class: "faint samples" }, ...SAMPLES.map(sample)),
  );
}

// How wide a line is for which share.
function sample(share) {
  const svg = drawn("svg", { width: 22, height: 6, "aria-hidden": "true" });
  drawn("path", { d: "M0 3h22", "stroke-width": widthOf(share) }, svg);
  return element("span", {}, svg, share === 1 ? "1: the target word's best link" : `${share}`);
}

function column(name, words, make) {
  const nodes = words.map((word, i) => element("li", {}, make(word, i)));
  return element("ol", { "aria-label": name, dir: "auto" }, ...nodes);
}

function wordNode(word, label, light, onclick = light) {
  const about = { type: "button", dir: "auto", text: word, "aria-label": label, onclick };
  return element("button", { ...about, onmouseenter: light, onfocus: light });
}

function picture(lines, rows) {
  const [width, height] = [WIDE, rows * ROW];
  const viewBox = `0 0 ${width} ${height}`;
  const svg = drawn("svg", { width, height, viewBox, "aria-hidden": "true" });
  for (const { i, j, share } of lines) {
    const [from, to] = [(i + 0.5) * ROW, (j + 0.5) * ROW];
    const bend = WIDE / 2;
    const d = `M0 ${from} C ${bend} ${from} ${bend} ${to} ${WIDE} ${to}`;
    drawn("path", { d, "stroke-width": widthOf(share), "data-i": i, "data-j": j }, svg);
  }
  return svg;
}
