// A part of a page as SVG: its boxes, letters and pictures are drawn again at the same positions.

const SVG = "http://www.w3.org/2000/svg";
const XML = "http://www.w3.org/XML/1998/namespace";
const ARABIC = /\p{Script=Arabic}/u;
const SHAPES = ["fill", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-weight"];
const MARGIN = 8; // pixels around the picture

function made(name, about, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(about)) {
    node.setAttributeNS(key.startsWith("xml:") ? XML : null, key, value);
  }
  node.append(...children);
  return node;
}

// The drawing of a node with everything that scrolls in it, as an SVG element.
export function drawing(node) {
  const scrolled = [node, ...node.querySelectorAll(".scroll")].map((box) => [box, box.scrollLeft]);
  for (const [box] of scrolled) box.scrollLeft = 0;
  node.classList.add("drawing"); // without controls, and as wide as what scrolls in it
  const canvas = { parts: [], ink: document.createElement("canvas").getContext("2d"), clips: 0 };
  const extent = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  draw(canvas, extent, node);
  node.classList.remove("drawing");
  for (const [box, left] of scrolled) box.scrollLeft = left;
  if (extent.left > extent.right) throw new Error("There is nothing to draw: type a text first.");
  const { left, top } = extent;
  const width = Math.ceil(extent.right - left) + 2 * MARGIN;
  const height = Math.ceil(extent.bottom - top) + 2 * MARGIN;
  const ground = groundOf(node);
  return made(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}` },
    made("rect", { width, height, fill: ground }),
    made("g", { transform: `translate(${MARGIN - left} ${MARGIN - top})` }, ...canvas.parts),
  );
}

const isClear = (colour) => /^rgba\(.*, 0\)$|^transparent$/.test(colour);

// The colour behind a node.
function groundOf(node) {
  const colour = getComputedStyle(node).backgroundColor;
  if (!isClear(colour)) return colour;
  return node.parentElement ? groundOf(node.parentElement) : "#ffffff";
}

function draw(canvas, extent, node) {
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return;
  if (node instanceof SVGSVGElement) {
    picture(canvas, extent, node);
    return;
  }
  if (node instanceof HTMLCanvasElement || node instanceof HTMLImageElement) {
    pixels(canvas, extent, node, style);
    return;
  }
  boxes(canvas, extent, node, style);
  for (const child of node.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) draw(canvas, extent, child);
    else if (child.nodeType === Node.TEXT_NODE && child.data.trim()) letters(canvas, child, style);
  }
}

function grow(extent, box) {
  extent.left = Math.min(extent.left, box.left);
  extent.top = Math.min(extent.top, box.top);
  extent.right = Math.max(extent.right, box.right);
  extent.bottom = Math.max(extent.bottom, box.bottom);
}

function boxes(canvas, extent, node, style) {
  const colours = style.backgroundImage.match(/rgba?\([^)]+\)|#[0-9a-f]{6}/gi);
  for (const box of node.getClientRects()) {
    if (!box.width || !box.height) continue;
    grow(extent, box);
    if (node.style.getPropertyValue("--sure")) gauge(canvas, box, node, style, colours);
    else if (colours) canvas.parts.push(...ramp(canvas, box, style, colours));
    else if (!isClear(style.backgroundColor)) {
      canvas.parts.push(made("rect", { ...shape(box, style), fill: style.backgroundColor }));
    }
    borders(canvas, box, style);
  }
}

// The line below a token of an answer, as long as it is probable.
function gauge(canvas, box, node, style, colours) {
  const { left, width, bottom } = box;
  const sure = Number(node.style.getPropertyValue("--sure"));
  const long = Math.max(0, width - 2); // lines of neighbours do not touch
  const line = (share, fill) =>
    made("rect", { x: left + 1, y: bottom - 3, width: share * long, height: 3, fill });
  if (!isClear(style.backgroundColor)) {
    canvas.parts.push(made("rect", { ...shape(box, style), fill: style.backgroundColor }));
  }
  canvas.parts.push(line(1, colours.at(-1)), line(sure, colours[0]));
}

function shape(box, style, inset = 0) {
  const width = Math.max(0, box.width - 2 * inset);
  const height = Math.max(0, box.height - 2 * inset);
  const radius = parseFloat(style.borderEndEndRadius) || 0;
  const rx = Math.min(radius, width / 2, height / 2); // else SVG draws an ellipse
  return { x: box.left + inset, y: box.top + inset, width, height, rx };
}

function ramp(canvas, box, style, colours) {
  const id = `ramp${canvas.clips++}`;
  const stops = colours.map((colour, i) =>
    made("stop", { offset: i / (colours.length - 1), "stop-color": colour }),
  );
  const fill = `url(#${id})`;
  return [
    made("defs", {}, made("linearGradient", { id }, ...stops)),
    made("rect", { ...shape(box, style), fill }),
  ];
}

// Borders; and outlines, which separate sub-words and mark what is chosen.
function borders(canvas, box, style) {
  const width = parseFloat(style.borderTopWidth);
  if (width && style.borderTopStyle !== "none") {
    const about = { fill: "none", stroke: style.borderTopColor, "stroke-width": width };
    if (parseFloat(style.borderBottomWidth)) {
      canvas.parts.push(made("rect", { ...shape(box, style, width / 2), ...about }));
    } else {
      const line = { x1: box.left, x2: box.right, y1: box.top, y2: box.top };
      canvas.parts.push(made("line", { ...line, ...about }));
    }
  }
  if (style.outlineStyle === "none" || !parseFloat(style.outlineWidth)) return;
  const dots = style.outlineStyle === "dotted" ? { "stroke-dasharray": "1 2" } : {};
  const edge = { fill: "none", stroke: style.outlineColor, "stroke-width": style.outlineWidth };
  const inset = -parseFloat(style.outlineOffset) - parseFloat(style.outlineWidth) / 2;
  canvas.parts.push(made("rect", { ...shape(box, style, inset), ...edge, ...dots }));
}

// A map of a head or an image, written into the drawing.
function pixels(canvas, extent, node, style) {
  const box = node.getBoundingClientRect();
  grow(extent, box);
  const href = node.toDataURL?.() ?? node.src;
  const about = { href, preserveAspectRatio: "none", "image-rendering": style.imageRendering };
  canvas.parts.push(made("image", { ...about, ...shape(box, style) }));
}

// An SVG in the page, with its colours written into it.
function picture(canvas, extent, svg) {
  const box = svg.getBoundingClientRect();
  grow(extent, box);
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of SHAPES) node.setAttribute(name, style.getPropertyValue(name));
    if (node.nodeName === "text") node.setAttribute("font-family", style.fontFamily);
  });
  const inside = svg.viewBox.baseVal; // an image is drawn in its own pixels
  const scale = inside?.width
    ? `scale(${box.width / inside.width} ${box.height / inside.height})`
    : "";
  const place = { transform: `translate(${box.left} ${box.top}) ${scale}`.trim() };
  canvas.parts.push(made("g", place, ...copy.childNodes));
}

function letters(canvas, text, style) {
  const { ink } = canvas;
  ink.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const about = {
    "font-family": style.fontFamily,
    "font-size": style.fontSize,
    "font-weight": style.fontWeight,
    fill: style.color,
    "xml:space": "preserve",
  };
  const upright = !style.writingMode.startsWith("vertical");
  const parts = lines(text);
  for (const { part, box } of parts) {
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = ink.measureText(part);
    if (!upright) {
      const x = box.left + (box.width - up - down) / 2 + up;
      const turned = { transform: `translate(${x} ${box.bottom}) rotate(-90)` };
      canvas.parts.push(made("text", { ...about, ...turned }, part));
      continue;
    }
    const y = box.top + (box.height - up - down) / 2 + up;
    const parent = text.parentNode;
    const inWord = parts.length === 1 && ARABIC.test(part) && parent.dataset.score !== undefined;
    if (inWord) canvas.parts.push(...cutOut(canvas, parent, box, { ...about, y }));
    else canvas.parts.push(line(about, style, part, box, y));
    underline(canvas, style, box, y);
  }
}

// The width is written too, so that another font does not move what follows.
function line(about, style, part, box, y) {
  const rtl = style.direction === "rtl";
  const place = { x: rtl ? box.right : box.left, y, ...(rtl ? { direction: "rtl" } : {}) };
  const width = { textLength: box.width.toFixed(2), lengthAdjust: "spacingAndGlyphs" };
  return made("text", { ...about, ...place, ...width }, part);
}

function underline(canvas, style, box, y) {
  if (!style.textDecorationLine.includes("underline") || style.textDecorationStyle !== "solid") {
    return;
  }
  const about = { x1: box.left, x2: box.right, y1: y + 4, y2: y + 4, "stroke-width": 2 };
  canvas.parts.push(made("line", { ...about, stroke: style.color }));
}

// Arabic letters keep their shapes from the whole word, so each sub-word is clipped out of it.
function cutOut(canvas, span, box, about) {
  const { whole, right } = wordAround(span, span.getBoundingClientRect().top);
  const id = `clip${canvas.clips++}`;
  const window = { x: box.left, y: box.top - box.height, width: box.width, height: 3 * box.height };
  const text = made("text", { ...about, x: right, direction: "rtl" }, whole);
  return [
    made("clipPath", { id }, made("rect", window)),
    made("g", { "clip-path": `url(#${id})` }, text),
  ];
}

function wordAround(span, top) {
  const parts = [span];
  const fits = (next) =>
    next?.nodeType === Node.ELEMENT_NODE &&
    ARABIC.test(next.textContent) &&
    Math.abs(next.getBoundingClientRect().top - top) < 2;
  while (fits(parts[0].previousSibling)) parts.unshift(parts[0].previousSibling);
  while (fits(parts.at(-1).nextSibling)) parts.push(parts.at(-1).nextSibling);
  const right = Math.max(...parts.map((part) => part.getBoundingClientRect().right));
  return { whole: parts.map((part) => part.textContent).join(""), right };
}

// A text node split into its lines.
function lines(text) {
  const range = document.createRange();
  range.setStart(text, text.data.search(/\S/));
  range.setEnd(text, text.data.trimEnd().length); // spaces at the ends are not drawn
  const boxes = [...range.getClientRects()].filter((box) => box.width);
  if (boxes.length <= 1) return boxes.map((box) => ({ part: text.data.trim(), box }));
  const parts = [];
  let at = 0;
  for (const letter of text.data) {
    range.setStart(text, at);
    range.setEnd(text, at + letter.length);
    at += letter.length;
    const box = range.getClientRects()[0];
    if (!box?.width) continue; // a line break
    const last = parts.at(-1);
    if (last && Math.abs(last.box.top - box.top) < 2) {
      last.part += letter;
      last.box = DOMRect.fromRect({
        x: Math.min(last.box.left, box.left),
        y: last.box.top,
        width: Math.max(last.box.right, box.right) - Math.min(last.box.left, box.left),
        height: last.box.height,
      });
    } else parts.push({ part: letter, box });
  }
  return parts.filter(({ part }) => part.trim());
}
