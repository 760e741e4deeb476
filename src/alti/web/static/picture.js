// A drawing as a file: SVG, PNG, or a PDF with the picture on a page of its size.

import { drawing } from "/drawing.js";

const SHARP = 2; // pixels of a PNG per CSS pixel
const SHARPER = 3; // of a PDF
const LARGEST = 16_000; // pixels of a side; browsers draw nothing beyond

export function vector(node) {
  const text = new XMLSerializer().serializeToString(drawing(node));
  return new Blob([text], { type: "image/svg+xml" });
}

export async function picture(node) {
  const canvas = await painted(drawing(node), SHARP);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("The picture is too large for this browser: save it as SVG.");
  return blob;
}

async function painted(svg, sharp) {
  const [width, height] = [svg.getAttribute("width"), svg.getAttribute("height")].map(Number);
  const scale = Math.min(sharp, LARGEST / width, LARGEST / height);
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

export async function pdf(node) {
  const svg = drawing(node);
  const canvas = await painted(svg, SHARPER);
  const { width, height } = canvas;
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const colours = new Uint8Array(3 * width * height);
  for (let i = 0, j = 0; i < pixels.length; i += 4) {
    for (let k = 0; k < 3; k++) colours[j++] = pixels[i + k];
  }
  const packed = new Blob([colours]).stream().pipeThrough(new CompressionStream("deflate"));
  const data = new Uint8Array(await new Response(packed).arrayBuffer());
  const points = ["width", "height"].map((name) => 0.75 * Number(svg.getAttribute(name)));
  return new Blob(pages(data, width, height, points), { type: "application/pdf" });
}

// One page with one picture on it.
function pages(data, width, height, [across, down]) {
  const content = `q ${across} 0 0 ${down} 0 0 cm /I Do Q`;
  const image =
    `<< /Type /XObject /Subtype /Image /Width ${width} /Height ${height} /ColorSpace /DeviceRGB ` +
    `/BitsPerComponent 8 /Filter /FlateDecode /Length ${data.length} >>\nstream\n`;
  const page =
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${across} ${down}] /Contents 4 0 R ` +
    "/Resources << /XObject << /I 5 0 R >> >> >>";
  const objects = [
    ["<< /Type /Catalog /Pages 2 0 R >>"],
    ["<< /Type /Pages /Kids [3 0 R] /Count 1 >>"],
    [page],
    [`<< /Length ${content.length} >>\nstream\n${content}\nendstream`],
    [image, data, "\nendstream"],
  ];
  return assembled(objects);
}

// The objects of a PDF with the table that says where each begins.
function assembled(objects) {
  const parts = ["%PDF-1.4\n"];
  const starts = [];
  let at = parts[0].length;
  const add = (part) => {
    parts.push(part);
    at += part.length; // text is ASCII
  };
  objects.forEach((object, i) => {
    starts.push(at);
    for (const part of [`${i + 1} 0 obj\n`, ...object, "\nendobj\n"]) add(part);
  });
  const start = at;
  const rows = starts.map((each) => `${String(each).padStart(10, "0")} 00000 n \n`).join("");
  const size = objects.length + 1;
  add(`xref\n0 ${size}\n0000000000 65535 f \n${rows}`);
  add(`trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`);
  return parts;
}
