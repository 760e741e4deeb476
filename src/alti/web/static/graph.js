// The contribution graph: layers from the top down, tokens as columns; what reaches the picked tokens is blue.

import { fitting, leans, letters, short, startOf, through } from "/mixing.js";

const SVG = "http://www.w3.org/2000/svg";
const EDGES = 6000; // more lines than that are no picture
const FEW = 2500; // more than that are drawn fainter
const STRONG = 0.01; // share of the picked tokens that has to pass, to be blue
const NAMES = 64; // wide: the column of the layers' names

function drawn(name, about, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// Two pictures: the names of the layers, which stay where they are, and the rest, which scrolls sideways.
export function graph(view, places, { threshold, last, room, pick }) {
  const { maps, names } = view;
  const passing = flows(maps, places, names.length, last);
  const edges = edgesOf(maps, passing, names.length, threshold, last);
  const plan = planOf(names, maps.length, last, room);
  const { width, height } = plan;
  const target = places.map((place) => names[place]).join(" ");
  const said = `Contributions of at least ${100 * threshold} % that lead to ${target}`;
  const layers = drawn("svg", { width: NAMES, height, class: "names", "aria-hidden": "true" });
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": said });
  for (const edge of edges) drawEdge(svg, plan, edge, Math.min(1, FEW / edges.length));
  passing.forEach((shares, l) => {
    const layer = l ? `layer ${l}` : "input";
    drawn("text", { x: NAMES - 10, y: plan.y(l) + 4, class: "layer", "text-anchor": "end" }, layers, layer);
    shares.forEach((share, i) => drawDot(svg, plan, i, l, share, `${names[i]}, ${layer}`, target));
  });
  names.forEach((name, i) => drawLabel(svg, plan, name, i, places.includes(i), pick));
  for (const i of places) {
    const below = { class: "token on", x: plan.x(i), y: plan.y(last + 1) + 24, "text-anchor": "middle" };
    drawn("text", below, svg, short(names[i]));
  }
  return { pictures: [layers, svg], full: edges.length === EDGES ? EDGES : 0 };
}

// Where things stand.
function planOf(names, layers, last, room) {
  const wide = fitting(room - NAMES - 52, names.length, 24, 72);
  const top = 30 + 5.6 * Math.max(...names.map((name) => (leans(name) ? letters(short(name)).length : 1)));
  const tall = Math.max(40, Math.min(76, 440 / layers));
  return {
    top,
    width: names.length * wide + 52, // the last label leans over
    height: top + (last + 1) * tall + 34,
    x: (i) => 4 + (i + 0.5) * wide,
    y: (l) => top + l * tall,
  };
}

// How much of the picked tokens passes through every token of every layer, from the last layer down.
function flows(maps, places, size, last) {
  const passing = [startOf(places, size)];
  for (let l = last; l >= 0; l--) passing.unshift(through(passing[0], maps[l]));
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

function drawEdge(svg, { x, y }, { l, i, j, share, flow }, faint) {
  const [x1, y1, x2, y2] = [x(j), y(l), x(i), y(l + 1)];
  const bend = (y2 - y1) * 0.45;
  const strong = flow >= STRONG;
  const width = strong ? 1 + 7 * Math.sqrt(flow) : 0.6 + 1.6 * share;
  const opacity = strong ? Math.min(1, 0.3 + 0.9 * Math.sqrt(flow)) : faint * (0.2 + 0.5 * share);
  const about = {
    class: strong ? "edge strong" : "edge",
    "stroke-width": width.toFixed(2),
    "stroke-opacity": opacity.toFixed(3),
  };
  drawn("path", { ...about, d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` }, svg);
}

function drawDot(svg, { x, y }, i, l, share, name, target) {
  const radius = 2.2 + 5 * Math.sqrt(Math.min(1, share));
  const about = { cx: x(i), cy: y(l), r: radius.toFixed(1), class: share >= STRONG ? "dot strong" : "dot" };
  drawn("title", {}, drawn("circle", about, svg), `${name}: ${(100 * share).toFixed(1)} % of ${target}`);
}

function drawLabel(svg, { x, top }, name, i, on, pick) {
  const leaning = { transform: `translate(${x(i) + 4} ${top - 14}) rotate(-55)` };
  const upright = { x: x(i), y: top - 14, "text-anchor": "middle" };
  const about = { class: on ? "token on" : "token", "data-place": i, ...(leans(name) ? leaning : upright) };
  drawn("text", about, svg, short(name)).addEventListener("click", () => pick(i));
}
