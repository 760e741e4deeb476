// What an answer is made of after each layer: the same prompt, coloured layer by layer.

import { element } from "/paint.js";
import { unpacked } from "/server.js";

// For each layer, what each piece has by where it starts.
export const rowsByStart = (sent) =>
  unpacked(sent).map((row) => new Map(sent.starts.map((start, i) => [start, row[i]])));

// A slider over the layers; `load()` gets the rows when they are first asked for, and `paint` is
// given the row that is chosen, or null for the method's own scores.
export function layerSlider(count, load, paint) {
  const button = element("button", {
    type: "button",
    class: "plain",
    id: "follow",
    text: "Follow it through the layers",
  });
  const output = element("output", { id: "answer-layer-number" });
  const about = { id: "answer-layer", type: "range", min: 1, max: count, step: 1 };
  const slider = element("input", { ...about, value: count });
  const span = element("span", {}, "After layer ", output);
  const label = element(
    "label",
    { class: "choice slider", for: "answer-layer", hidden: true },
    span,
    slider,
  );
  let rows = null;
  const show = () => {
    const layer = Number(slider.value);
    output.textContent = `${layer} of ${count}, as alti sees it`;
    slider.setAttribute("aria-valuetext", `${layer} of ${count}`);
    paint(rows[layer - 1], layer);
  };
  slider.addEventListener("input", show);
  button.addEventListener("click", async () => {
    if (!label.hidden) {
      label.hidden = true;
      button.textContent = "Follow it through the layers";
      paint(null);
      return;
    }
    rows ??= await load();
    if (!rows) return;
    slider.max = count = rows.length;
    label.hidden = false;
    button.textContent = "Back to the scores";
    show();
    slider.focus();
  });
  return element("div", { class: "controls", id: "answer-layers" }, label, button);
}

// The view of an answer as it is after a layer: shares instead of scores.
export function afterLayer(view, row, layer) {
  const share = ({ score, start }) => (score === undefined ? undefined : (row.get(start) ?? 0));
  const pieces = view.pieces.map((piece) => ({ ...piece, score: share(piece) }));
  const inside = ({ first, end }) => pieces.slice(first, end).filter(({ special }) => !special);
  const sum = (some) => some.reduce((total, { score = 0 }) => total + score, 0);
  const sections = view.sections.map((section) => ({ ...section, score: sum(inside(section)) }));
  const unit = `shares of 1, after layer ${layer}, as alti sees it`;
  const heading = `What it is made of most after layer ${layer}, in shares of 1`;
  return { ...view, pieces, sections, unit, heading, signed: false, left: [] };
}
