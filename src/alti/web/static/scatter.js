// A small scatter plot: a dot for each word, with the names of the strongest.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [340, 260];
const EDGE = { left: 58, right: 14, top: 12, bottom: 40 };
const NAMED = 6; // dots with a name beside them
const LONGEST = 16; // letters of a name

function drawn(name, about, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(about)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

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
  const strongest = [...dots].sort((a, b) => Math.abs(b.y) - Math.abs(a.y)).slice(0, NAMED);
  const taken = [];
  for (const dot of dots) {
    const [cx, cy] = [across.place(dot.x), up.place(dot.y)];
    const circle = drawn("circle", { cx, cy, r: 4, class: "dot" }, svg);
    drawn("title", {}, circle, `${dot.name}: predicted ${shown(dot.x)}, measured ${shown(dot.y)}`);
    if (strongest.includes(dot)) nameOf(svg, dot.name, cx, cy, taken);
  }
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

// A name beside its dot, unless another one is there.
function nameOf(svg, name, cx, cy, taken) {
  const letters = [...name];
  const text = letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : name;
  const wide = 7 * [...text].length;
  const leftwards = cx + wide > WIDTH - 10;
  const x = leftwards ? cx - 8 - wide : cx + 8;
  if (
    taken.some(
      (other) => Math.abs(other.y - cy) < 13 && x < other.x + other.wide && other.x < x + wide,
    )
  )
    return;
  taken.push({ x, y: cy, wide });
  drawn(
    "text",
    {
      x: leftwards ? cx - 8 : cx + 8,
      y: cy + 4,
      "text-anchor": leftwards ? "end" : "start",
      class: "dot-name",
    },
    svg,
    text,
  );
}
