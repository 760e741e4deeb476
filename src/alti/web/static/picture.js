// A part of the page as a PNG: its boxes and letters are redrawn on a canvas at the same positions.

const SHARP = 2; // canvas pixels per CSS pixel
const ARABIC = /\p{Script=Arabic}/u;

export async function picture(node) {
  const box = node.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(box.width * SHARP);
  canvas.height = Math.ceil(box.height * SHARP);
  const ink = canvas.getContext("2d");
  ink.scale(SHARP, SHARP);
  ink.fillStyle = getComputedStyle(document.body).backgroundColor;
  ink.fillRect(0, 0, box.width, box.height);
  ink.translate(-box.left, -box.top);
  draw(ink, node);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("There is nothing to draw: type a text first.");
  return blob;
}

function draw(ink, node) {
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return;
  boxes(ink, node, style);
  for (const child of node.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) draw(ink, child);
    else if (child.nodeType === Node.TEXT_NODE && child.data.trim()) letters(ink, child, style);
  }
}

function boxes(ink, node, style) {
  const colours = style.backgroundImage.match(/rgba?\([^)]+\)|#[0-9a-f]{6}/gi);
  const plain = style.backgroundColor;
  for (const box of node.getClientRects()) {
    if (colours) {
      const ramp = ink.createLinearGradient(box.left, 0, box.right, 0);
      colours.forEach((colour, i) => ramp.addColorStop(i / (colours.length - 1), colour));
      fill(ink, box, style, ramp);
    } else if (!/^rgba\(.*, 0\)$|^transparent$/.test(plain)) fill(ink, box, style, plain);
    if (parseFloat(style.borderTopWidth) && style.borderTopStyle !== "none") {
      ink.fillStyle = style.borderTopColor;
      if (parseFloat(style.borderBottomWidth)) outline(ink, box, style);
      else ink.fillRect(box.left, box.top, box.width, parseFloat(style.borderTopWidth));
    }
  }
}

function path(ink, box, style) {
  ink.beginPath();
  const radius = parseFloat(style.borderEndEndRadius) || 0;
  ink.roundRect(box.left, box.top, box.width, box.height, radius);
}

function fill(ink, box, style, paint) {
  ink.fillStyle = paint;
  path(ink, box, style);
  ink.fill();
}

function outline(ink, box, style) {
  ink.strokeStyle = style.borderTopColor;
  ink.lineWidth = parseFloat(style.borderTopWidth);
  path(ink, box, style);
  ink.stroke();
}

function letters(ink, text, style) {
  ink.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  ink.fillStyle = style.color;
  ink.direction = style.direction;
  ink.textAlign = "left";
  const parts = lines(text);
  for (const { part, box } of parts) {
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = ink.measureText(part);
    const base = box.top + (box.height - up - down) / 2 + up;
    const parent = text.parentNode;
    const inWord = parts.length === 1 && ARABIC.test(part) && parent.dataset.score !== undefined;
    if (inWord) cutOut(ink, wordAround(parent, parent.getBoundingClientRect().top), box, base);
    else ink.fillText(part, box.left, base);
  }
}

// Arabic letters keep their shapes from the whole word, so each sub-word is clipped out of it.
function wordAround(span, top) {
  const parts = [span];
  const fits = (next) =>
    next?.nodeType === Node.ELEMENT_NODE &&
    ARABIC.test(next.textContent) &&
    Math.abs(next.getBoundingClientRect().top - top) < 2;
  while (fits(parts[0].previousSibling)) parts.unshift(parts[0].previousSibling);
  while (fits(parts.at(-1).nextSibling)) parts.push(parts.at(-1).nextSibling);
  const left = Math.min(...parts.map((part) => part.getBoundingClientRect().left));
  return { whole: parts.map((part) => part.textContent).join(""), left };
}

function cutOut(ink, { whole, left }, box, base) {
  ink.save();
  ink.beginPath();
  ink.rect(box.left, box.top - box.height, box.width, 3 * box.height);
  ink.clip();
  ink.fillText(whole, left, base);
  ink.restore();
}

// A text node split into its lines.
function lines(text) {
  const range = document.createRange();
  range.selectNodeContents(text);
  const boxes = [...range.getClientRects()];
  if (boxes.length <= 1) return boxes.map((box) => ({ part: text.data.trim() || text.data, box }));
  const parts = [];
  let at = 0;
  for (const letter of text.data) {
    range.setStart(text, at);
    range.setEnd(text, at + letter.length);
    at += letter.length;
    const box = range.getClientRects()[0];
    if (!box) continue;
    const last = parts.at(-1);
    if (last && Math.abs(last.box.top - box.top) < 2) last.part += letter;
    else parts.push({ part: letter, box });
  }
  return parts;
}
