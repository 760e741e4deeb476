// What a token is made of: rows of C^l and of R^l = C^l · … · C^1, the strip of all layers, and the graph.

import { classOf, element, number } from "/paint.js";

const EDGES = 6000; // more lines than that are no picture
const NAMES = 64; // wide: the column of the layers' names
const SVG = "http://www.w3.org/2000/svg";

// The maps come as 16-bit shares of each layer's largest number.
export function unpacked({ shape, largest, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const shares = new DataView(bytes.buffer);
  const [layers, tokens] = shape;
  return Array.from({ length: layers }, (_, layer) => {
    const map = new Float64Array(tokens * tokens);
    const start = layer * map.length;
    for (let i = 0; i < map.length; i++) map[i] = (shares.getUint16(2 * (start + i), true) / 65535) * largest[layer];
    return map;
  });
}

function through(row, map) {
  const size = row.length;
  const made = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    if (!row[i]) continue;
    for (let j = 0; j < size; j++) made[j] += row[i] * map[i * size + j];
  }
  return made;
}

function startOf(places, size) {
  const row = new Float64Array(size);
  for (const place of places) row[place] = 1 / places.length;
  return row;
}

// For each layer, what the tokens at `places` are made of: of the input, or of the layer below.
export function rowsOf(maps, places, size, since) {
  return maps.map((map, layer) => {
    let row = through(startOf(places, size), map);
    if (since === "input") for (let below = layer - 1; below >= 0; below--) row = through(row, maps[below]);
    return [...row];
  });
}

const fitting = (room, count, least, most) => Math.max(least, Math.min(most, Math.floor(room / count)));
const letters = (name) => [...new Intl.Segmenter().segment(name)].map((one) => one.segment); // an emoji is one
const short = (name) => (letters(name).length > 16 ? `${letters(name).slice(0, 15).join("")}…` : name);
const leans = (name) => letters(name).length > 2;

export function strip(view, rows, { layer, places, room, choose, pick }) {
  const head = element("tr", {}, element("td", { text: "layer" }));
  view.names.forEach((name, i) => {
    const on = places.includes(i) ? "on" : null;
    const named = [on, leans(name) ? "long" : null].filter(Boolean).join(" ") || null;
    const button = element("button", { type: "button", class: named, title: name, "data-place": i, text: short(name), onclick: () => pick(i) });
    head.append(element("th", { scope: "col", class: view.special[i] ? "special" : null }, button));
  });
  const body = rows.map((row, l) => {
    const largest = Math.max(...row);
    const scale = { largest, signed: false };
    const button = element("button", { type: "button", text: String(l + 1), "aria-label": `layer ${l + 1}`, onclick: () => choose(l) });
    const line = element("tr", { "data-layer": l, class: l === layer ? "on" : null }, element("th", { scope: "row" }, button));
    row.forEach((score, i) => {
      const about = `${view.names[i]}, layer ${l + 1}: ${number(score, scale)}`;
      line.append(element("td", { class: classOf(score, largest) || null, title: about }));
    });
    line.addEventListener("click", () => choose(l));
    return line;
  });
  const table = element("table", { class: "strip" }, element("thead", {}, head), element("tbody", {}, ...body));
  table.style.setProperty("--cell", `${fitting(room - 60, view.names.length, 22, 54) - 2}px`);
  return table;
}

function drawn(name, about, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

// How much of the picked tokens passes through every token of every layer, from the last layer down.
function flows(maps, places, size, last) {
  const passing = Array(last + 2);
  passing[last + 1] = startOf(places, size);
  for (let l = last; l >= 0; l--) passing[l] = through(passing[l + 1], maps[l]);
  return passing;
}

function edgesOf(maps, passing, size, threshold, last) {
  const found = [];
  for (let l = 0; l <= last; l++) {
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const share = maps[l][i * size + j];
        if (share >= threshold) found.push({ l, i, j, share, flow: passing[l + 1][i] * share });
      }
    }
  }
  const kept = found.length > EDGES ? found.sort((a, b) => b.share - a.share).slice(0, EDGES) : found;
  return kept.sort((a, b) => a.flow - b.flow); // the strongest on top
}

// Layers from the top down, tokens as columns; what reaches the picked tokens is blue. Two pictures: the layers' names,
// which stay where they are, and the rest, which scrolls sideways.
export function graph(view, maps, places, { threshold, last, room, pick }) {
  const size = view.names.length;
  const left = 4;
  const wide = fitting(room - NAMES - 52, size, 24, 72);
  const top = 30 + 5.6 * Math.max(...view.names.map((name) => (leans(name) ? letters(short(name)).length : 1)));
  const tall = Math.max(40, Math.min(76, 440 / maps.length));
  const width = left + size * wide + 48; // the last label leans over
  const height = top + (last + 1) * tall + 34;
  const x = (i) => left + i * wide + wide / 2;
  const y = (l) => top + l * tall;
  const names = drawn("svg", { width: NAMES, height, class: "names", "aria-hidden": "true" });
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const target = places.map((place) => view.names[place]).join(" ");
  svg.setAttribute("aria-label", `Contributions of at least ${threshold} that lead to ${target}`);
  const passing = flows(maps, places, size, last);
  const edges = edgesOf(maps, passing, size, threshold, last);
  const faint = Math.min(1, 2500 / edges.length);
  for (const edge of edges) {
    const [x1, y1, x2, y2] = [x(edge.j), y(edge.l), x(edge.i), y(edge.l + 1)];
    const bend = (y2 - y1) * 0.45;
    const strong = edge.flow >= 0.01;
    drawn("path", {
      d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`,
      class: strong ? "edge strong" : "edge",
      "stroke-width": strong ? (1 + 7 * Math.sqrt(edge.flow)).toFixed(2) : (0.6 + 1.6 * edge.share).toFixed(2),
      "stroke-opacity": strong ? Math.min(1, 0.3 + 0.9 * Math.sqrt(edge.flow)).toFixed(2) : (faint * (0.2 + 0.5 * edge.share)).toFixed(3),
      "data-flow": edge.flow.toFixed(4),
    }, svg);
  }
  for (let l = 0; l <= last + 1; l++) {
    drawn("text", { x: NAMES - 10, y: y(l) + 4, class: "layer", "text-anchor": "end" }, names).textContent = l ? `layer ${l}` : "input";
    for (let i = 0; i < size; i++) {
      const share = passing[l][i];
      const dot = drawn("circle", { cx: x(i), cy: y(l), r: (2.2 + 5 * Math.sqrt(Math.min(1, share))).toFixed(1), class: share >= 0.01 ? "dot strong" : "dot" }, svg);
      drawn("title", {}, dot).textContent = `${view.names[i]}, ${l ? `layer ${l}` : "input"}: ${(100 * share).toFixed(1)} % of ${target}`;
    }
  }
  view.names.forEach((name, i) => {
    const on = places.includes(i) ? " on" : "";
    const label = drawn("text", { class: `token${on}`, "data-place": i, tabindex: 0, role: "button", ...(leans(name) ? { transform: `translate(${x(i) + 4} ${top - 14}) rotate(-55)` } : { x: x(i), y: top - 14, "text-anchor": "middle" }) }, svg);
    label.textContent = short(name);
    label.addEventListener("click", () => pick(i));
    label.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pick(i);
      }
    });
    if (on) drawn("text", { class: "token on", x: x(i), y: y(last + 1) + 24, "text-anchor": "middle" }, svg).textContent = short(name);
  });
  return { pictures: [names, svg], full: edges.length === EDGES ? EDGES : 0 };
}
