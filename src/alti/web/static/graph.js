// The contribution graph: layers from top to bottom, tokens as columns. What reaches the picked
// tokens is blue.

import { fitting, leans, letters, short, startOf, through } from "/mixing.js";
import { drawn } from "/paint.js";

const EDGES = 6000; // the most lines to draw
const FEW = 2500; // more lines than this are drawn fainter
const STRONG = 0.01; // the share of the picked tokens from which a line is blue, or less:
const RELATIVE = 0.25; // this share of the strongest line between two tokens
export const STEPS = [0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 10, 15, 20, 30, 50]; // thresholds in per cent
const HIGHEST = 8; // that is chosen without being asked
const LEAST = 12; // lines that a threshold leaves
const LEGEND = 330; // pixels for the legend
const NAMES = 64; // pixels for the names of the layers

// Two pictures: the names of the layers, which stay in place, and the rest, which scrolls sideways.
export function graph(view, places, { threshold, last, room, pick }) {
  const { maps, names } = view;
  const passing = flows(maps, places, names.length, last);
  const edges = edgesOf(maps, passing, names.length, threshold, last);
  const which = said(edges, threshold, (last + 1) * names.length ** 2);
  const strong = strongFrom(edges);
  const plan = planOf(names, maps.length, last, room);
  const { width, height } = plan;
  const target = places.map((place) => names[place]).join(" ");
  const label = `Contributions that lead to ${target}: ${which}`;
  const layers = drawn("svg", { width: NAMES, height, class: "names", "aria-hidden": "true" });
  const viewBox = `0 0 ${width} ${height}`;
  const svg = drawn("svg", { width, height, viewBox, role: "group", "aria-label": label });
  for (const edge of edges) {
    drawEdge(svg, plan, edge, strong, Math.min(1, FEW / edges.length));
  }
  passing.forEach((shares, l) => {
    const layer = l ? `layer ${l}` : "input";
    const beside = { x: NAMES - 10, y: plan.y(l) + 4, class: "layer", "text-anchor": "end" };
    drawn("text", beside, layers, layer);
    shares.forEach((share, i) => {
      drawDot(svg, plan, { i, l, share, strong }, `${names[i]}, ${layer}`, target);
    });
  });
  names.forEach((name, i) => drawLabel(svg, plan, name, i, places.includes(i), pick));
  for (const i of places) {
    const name = short(names[i]);
    const below = { x: inside(plan, i, name), y: plan.y(last + 1) + 24, "text-anchor": "middle" };
    drawn("text", { class: "token on", ...below }, svg, name);
  }
  drawLegend(svg, plan, strong, short(target));
  return { pictures: [layers, svg], which };
}

// Which contributions are drawn: all above the threshold, or the largest of them.
function said(edges, threshold, all) {
  const least = edges.reduce((lowest, { share }) => Math.min(lowest, share), 1);
  const cut = edges.length === EDGES;
  const above = Number((100 * threshold).toPrecision(3));
  const lowest = Math.floor(10_000 * least) / 100;
  const [drawn, every] = [edges.length, all].map((number) => number.toLocaleString("en"));
  const count = `${drawn} of ${every} contributions are drawn`;
  if (!cut) return `${count}, those above ${above} %`;
  return `${count}, the largest, of at least ${Math.max(above, lowest)} %`;
}

const crosses = ({ i, j }) => i !== j;

// From which share of the picked tokens a line is blue: in a long text every share is small.
function strongFrom(edges) {
  const flows = edges.filter(crosses).map(({ flow }) => flow);
  const largest = flows.reduce((most, flow) => Math.max(most, flow), 0);
  return largest ? Math.min(STRONG, RELATIVE * largest) : STRONG;
}

// The highest threshold, in per cent, that leaves some lines that lead to the picked tokens.
export function suitable({ maps, names }, { places }) {
  const last = maps.length - 1;
  const passing = flows(maps, places, names.length, last);
  const edges = edgesOf(maps, passing, names.length, STEPS[0] / 100, last).filter(crosses);
  const strong = strongFrom(edges);
  const leading = edges.filter(({ flow }) => flow >= strong);
  const least = Math.min(LEAST, leading.length);
  const leaves = (step) => leading.filter(({ share }) => share >= step / 100).length >= least;
  return STEPS.findLast((step) => step <= HIGHEST && leaves(step)) ?? STEPS[0];
}

// The positions of everything.
function planOf(names, layers, last, room) {
  const wide = fitting(room - NAMES - 52, names.length, 24, 72);
  const lengths = names.map((name) => (leans(name) ? letters(short(name)).length : 1));
  const top = 30 + 5.6 * Math.max(...lengths);
  const tall = Math.max(40, Math.min(76, 440 / layers));
  return {
    top,
    width: Math.max(LEGEND, names.length * wide + 52), // the last label leans over
    height: top + (last + 1) * tall + 64,
    x: (i) => 4 + (i + 0.5) * wide,
    y: (l) => top + l * tall,
  };
}

// The middle of a name below a token that is as near to it as the edges allow.
function inside({ x, width }, i, name) {
  const half = 4.6 * letters(name).length;
  return Math.max(half, Math.min(width - half, x(i)));
}

// The share of the picked tokens that passes through each token of each layer.
function flows(maps, places, size, last) {
  const passing = [startOf(places, size)];
  for (let l = last; l >= 0; l--) passing.unshift(through(passing[0], maps[l]));
  return passing;
}

function edgesOf(maps, passing, size, threshold, last) {
  const edges = [];
  for (let l = 0; l <= last; l++) {
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const share = maps[l][i * size + j];
        if (share > threshold) edges.push({ l, i, j, share, flow: passing[l + 1][i] * share });
      }
    }
  }
  if (edges.length > EDGES) {
    edges.sort((a, b) => b.share - a.share);
    edges.length = EDGES;
  }
  return edges.sort((a, b) => a.flow - b.flow); // the strongest on top
}

const widthOf = (flow) => 1 + 7 * Math.sqrt(flow);
const opacityOf = (flow) => Math.min(1, 0.3 + 0.9 * Math.sqrt(flow));

// How wide a line is for which share of the picked tokens.
function drawLegend(svg, { height }, strong, target) {
  const y = height - 12;
  const name = (x, text) => drawn("text", { class: "layer", x, y: y + 4 }, svg, text);
  [strong, 10 * strong, 50 * strong].forEach((flow, i) => {
    const about = { "stroke-width": widthOf(flow), "stroke-opacity": opacityOf(flow) };
    drawn("path", { class: "sample", d: `M${6 + 64 * i} ${y}h22`, ...about }, svg);
    name(33 + 64 * i, `${Number((100 * flow).toPrecision(1))} %`);
  });
  name(210, `of ${target}`);
}

function drawEdge(svg, { x, y }, { l, i, j, share, flow }, from, faint) {
  const x1 = x(j);
  const y1 = y(l);
  const x2 = x(i);
  const y2 = y(l + 1);
  const bend = (y2 - y1) * 0.45;
  const strong = flow >= from;
  const width = strong ? widthOf(flow) : 0.6 + 1.6 * share;
  const opacity = strong ? opacityOf(flow) : faint * (0.2 + 0.5 * share);
  const about = {
    class: strong ? "edge strong" : "edge",
    "stroke-width": width.toFixed(2),
    "stroke-opacity": opacity.toFixed(3),
  };
  const d = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  drawn("path", { ...about, d }, svg);
}

function drawDot(svg, { x, y }, { i, l, share, strong }, name, target) {
  const radius = 2.2 + 5 * Math.sqrt(Math.min(1, share));
  const place = { cx: x(i), cy: y(l), r: radius.toFixed(1) };
  const dot = drawn("circle", { ...place, class: share >= strong ? "dot strong" : "dot" }, svg);
  drawn("title", {}, dot, `${name}: ${(100 * share).toFixed(1)} % of ${target}`);
}

function drawLabel(svg, { x, top }, name, i, on, pick) {
  const leaning = { transform: `translate(${x(i) + 4} ${top - 14}) rotate(-55)` };
  const upright = { x: x(i), y: top - 14, "text-anchor": "middle" };
  const place = leans(name) ? leaning : upright;
  const about = { class: on ? "token on" : "token", "data-place": i, ...place };
  drawn("text", about, svg, short(name)).addEventListener("click", () => pick(i));
}
