// A small scatter plot: a dot for each word, with the names of the strongest.

import { short } from "/mixing.js";
import { drawn } from "/paint.js";

const [WIDTH, HEIGHT] = [340, 260];
const EDGE = { left: 58, right: 14, top: 12, bottom: 40 };
const NAMED = 6; // dots with a name beside them
const LONGEST = 16; // letters of a name
const LETTER = 7; // pixels of one
const LINE = 13; // its height
const RADIUS = 4; // of a dot

// Numbers from the smallest to the largest, and 0, onto pixels.
function scaleOf(values, from, to) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const wide = high - low || 1;
  const place = (value) => from + ((value - low) / wide) * (to - from);
  return { low, high, place };
}

const shown = (value) => String(Number(value.toPrecision(2))).replace("-", "−");

export function scatter(dots, { x, y, title }) {
  const viewBox = `0 0 ${WIDTH} ${HEIGHT}`;
  const svg = drawn("svg", {
    viewBox,
    width: WIDTH,
    height: HEIGHT,
    class: "scatter",
    role: "img",
    "aria-label": title,
  });
  const across = scaleOf(
    dots.map((dot) => dot.x),
    EDGE.left,
    WIDTH - EDGE.right,
  );
  const up = scaleOf(
    dots.map((dot) => dot.y),
    HEIGHT - EDGE.bottom,
    EDGE.top,
  );
  axes(svg, across, up, x, y);
  const placed = dots.map((dot) => ({ ...dot, cx: across.place(dot.x), cy: up.place(dot.y) }));
  for (const { name, x, y, cx, cy } of placed) {
    const circle = drawn("circle", { cx, cy, r: RADIUS, class: "dot" }, svg);
    drawn("title", {}, circle, `${name}: predicted ${shown(x)}, measured ${shown(y)}`);
  }
  const taken = placed.map(({ cx, cy }) => boxOf(cx - RADIUS, cy, 2 * RADIUS, 2 * RADIUS));
  const strongest = placed.toSorted((a, b) => Math.abs(b.y) - Math.abs(a.y)).slice(0, NAMED);
  for (const dot of strongest) nameBeside(svg, dot, taken);
  return svg;
}

function axes(svg, across, up, x, y) {
  const [left, right, top, bottom] = [
    EDGE.left,
    WIDTH - EDGE.right,
    EDGE.top,
    HEIGHT - EDGE.bottom,
  ];
  const line = (x1, y1, x2, y2) => drawn("line", { x1, y1, x2, y2, class: "axis" }, svg);
  line(left, up.place(0), right, up.place(0));
  line(across.place(0), top, across.place(0), bottom);
  const text = (at, about, words) => drawn("text", { x: at[0], y: at[1], ...about }, svg, words);
  text([left, bottom + 16], { "text-anchor": "start" }, shown(across.low));
  text([right, bottom + 16], { "text-anchor": "end" }, shown(across.high));
  text([left - 6, bottom], { "text-anchor": "end" }, shown(up.low));
  text([left - 6, top + 8], { "text-anchor": "end" }, shown(up.high));
  text([(left + right) / 2, HEIGHT - 8], { "text-anchor": "middle", class: "axis-name" }, x);
  const turned = `rotate(-90 10 ${(top + bottom) / 2})`;
  text(
    [10, (top + bottom) / 2],
    { "text-anchor": "middle", class: "axis-name", transform: turned },
    y,
  );
}

const boxOf = (left, middle, wide, tall) => ({
  left,
  right: left + wide,
  top: middle - tall / 2,
  bottom: middle + tall / 2,
});
const meet = (a, b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const isInside = ({ left, right, top, bottom }) =>
  left >= EDGE.left && right <= WIDTH && top >= 0 && bottom <= HEIGHT - EDGE.bottom;

// A name beside its dot, above, below or at a corner: where it covers no dot and no other name.
function nameBeside(svg, { name, cx, cy }, taken) {
  const text = short(name, LONGEST);
  const wide = LETTER * [...text].length;
  const places = [
    { x: cx + 8, y: cy, anchor: "start", before: 0 },
    { x: cx - 8, y: cy, anchor: "end", before: wide },
    { x: cx, y: cy - LINE, anchor: "middle", before: wide / 2 },
    { x: cx, y: cy + LINE, anchor: "middle", before: wide / 2 },
    { x: cx - 6, y: cy + LINE, anchor: "end", before: wide },
    { x: cx + 6, y: cy - LINE, anchor: "start", before: 0 },
    { x: cx - 6, y: cy - LINE, anchor: "end", before: wide },
    { x: cx + 6, y: cy + LINE, anchor: "start", before: 0 },
  ].map((place) => ({ ...place, box: boxOf(place.x - place.before, place.y, wide, LINE) }));
  const free = places.find(
    ({ box }) => isInside(box) && !taken.some((other) => meet(box, other)),
  );
  if (!free) return;
  taken.push(free.box);
  const about = { x: free.x, y: free.y + 4, "text-anchor": free.anchor, class: "dot-name" };
  drawn("text", about, svg, text);
}
