// A drawing as a file, SVG or PNG, or as a page to print or to save as PDF.

import { drawing } from "/drawing.js";

const SHARP = 2; // pixels of a PNG per CSS pixel
const LARGEST = 16_000; // pixels of a side; browsers draw nothing beyond

export function vector(node) {
  const text = new XMLSerializer().serializeToString(drawing(node));
  return new Blob([text], { type: "image/svg+xml" });
}

export async function picture(node) {
  const canvas = await painted(drawing(node));
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("The picture is too large for this browser: save it as SVG.");
  return blob;
}

async function painted(svg) {
  const [width, height] = [svg.getAttribute("width"), svg.getAttribute("height")].map(Number);
  const scale = Math.min(SHARP, LARGEST / width, LARGEST / height);
  const image = new Image();
  const text = new XMLSerializer().serializeToString(svg);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// The drawing alone on a page of its size, for the browser to print or to save as PDF: of lines and
// letters in their fonts, which stay sharp. Resolves when the browser's window for it is closed.
export async function printed(node) {
  const svg = drawing(node);
  const [width, height] = ["width", "height"].map((side) => svg.getAttribute(side));
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`@page { size: ${width}px ${height}px; margin: 0; }`);
  document.adoptedStyleSheets.push(sheet);
  document.querySelector("svg.printed")?.remove(); // of a browser that did not say when it was done
  svg.classList.add("printed");
  document.body.append(svg);
  const closed = new Promise((done) => addEventListener("afterprint", done, { once: true }));
  window.print();
  await closed;
  svg.remove();
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
}
