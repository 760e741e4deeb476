// What a token consists of: rows of C^l and R^l = C^l · … · C^1, and the strip of all layers.

import { added, classOf, element, legend, number } from "/paint.js";

const STEEP = 0.6; // small shares would be white beside a few large ones; as in alti.plots
const HALF = 0.5 ** (1 / STEEP); // the share of the largest with half of the colour
export const halfOf = (scale) => `half of the colour at ${number(HALF * scale.largest, scale)}`;

// A row vector times a matrix.
export function through(row, map) {
  const size = row.length;
  const product = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    if (!row[i]) continue;
    for (let j = 0; j < size; j++) product[j] += row[i] * map[i * size + j];
  }
  return product;
}

export function startOf(places, size) {
  const row = new Float64Array(size);
  for (const place of places) row[place] = 1 / places.length;
  return row;
}

// For each layer, what the tokens at `places` consist of: the input, or the layer below.
export function rowsOf(maps, places, size, since) {
  return maps.map((map, layer) => {
    let row = through(startOf(places, size), map);
    if (since === "input") {
      for (let below = layer - 1; below >= 0; below--) row = through(row, maps[below]);
    }
    return [...row];
  });
}

// The width of a column, so that `count` columns fill the room.
export const fitting = (room, count, least, most) =>
  Math.max(least, Math.min(most, Math.floor(room / count)));
// The letters as a reader sees them: an emoji is one letter.
export const letters = (name) =>
  [...new Intl.Segmenter().segment(name)].map(({ segment }) => segment);
// What the model read instead of a name stays where the name is cut.
export function short(name, longest = 16) {
  if (letters(name).length <= longest) return name;
  const [, typed, read] = name.match(/^(.*?)( \[\S*\]| <\S*>)?$/su);
  const room = Math.max(1, longest - 1 - (read ?? "").length);
  return `${letters(typed).slice(0, room).join("")}…${read ?? ""}`;
}
export const leans = (name) => letters(name).length > 2;

// The rows have one scale for all layers.
export function strip(view, rows, { places, scale, room, choose, pick }) {
  const columns = view.names.map((_, i) => column(view, i, places, pick));
  const head = element("tr", {}, element("td", { text: "layer" }), ...columns);
  const table = element("table", { class: "strip" }, element("thead", {}, head));
  const lines = rows.map((row, layer) => line(view, row, layer, scale, choose));
  table.append(element("tbody", {}, ...lines));
  table.style.setProperty("--cell", `${fitting(room - 60, view.names.length, 22, 54) - 2}px`);
  return [table, legend(scale, { unit: `shares of 1, ${halfOf(scale)}` })];
}

// No tab stops here: the text above has the same words, and the slider has the same layers.
function column(view, i, places, pick) {
  const name = view.names[i];
  const classes = [places.includes(i) ? "on" : "", leans(name) ? "long" : ""];
  const button = element("button", {
    type: "button",
    tabindex: -1,
    class: classes.filter(Boolean).join(" ") || null,
    title: view.special[i] ? added(name) : name,
    "data-place": i,
    text: short(name),
    onclick: () => pick(i),
  });
  return element("th", { scope: "col", class: view.special[i] ? "special" : null }, button);
}

function line(view, row, layer, scale, choose) {
  const name = `layer ${layer + 1}`;
  const about = { type: "button", tabindex: -1, text: layer + 1, "aria-label": name };
  const tableRow = element("tr", { "data-layer": layer, onclick: () => choose(layer) });
  tableRow.append(element("th", { scope: "row" }, element("button", about)));
  row.forEach((score, i) => {
    const title = `${view.names[i]}, ${name}: ${number(score, scale)}`;
    const shade = (score / (scale.largest || 1)) ** STEEP;
    tableRow.append(element("td", { class: classOf(shade, 1) || "alti-zero", title }));
  });
  return tableRow;
}
