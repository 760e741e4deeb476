// The export menu: copies or saves an image, a web page, LaTeX or JSON.

import { element } from "/paint.js";
import { picture } from "/picture.js";

const KINDS = [
  { name: "Image", file: "alti.png", type: "image/png", format: null },
  { name: "HTML", file: "alti.html", type: "text/html", format: "html" },
  { name: "LaTeX", file: "alti.tex", type: "text/x-tex", format: "latex" },
  { name: "JSON", file: "alti.json", type: "application/json", format: "json" },
];

export function keep(menu, { ask, toast, node, question }) {
  const blobOf = async (kind) => {
    if (kind.format === null) return currentPicture(node());
    const response = await ask("/api/export", { ...question(), format: kind.format });
    return new Blob([await response.text()], { type: kind.type });
  };
  const run = (kind, action) => async () => {
    try {
      toast(await action(kind, await blobOf(kind)));
      menu.open = false;
    } catch (error) {
      toast(error.message);
    }
  };
  const button = (kind, text, action) => {
    const about = { type: "button", text, "aria-label": `${text} as ${kind.name}` };
    return element("button", { ...about, onclick: run(kind, action) });
  };
  const rows = KINDS.map((kind) => {
    const name = element("b", { text: kind.name });
    const buttons = [button(kind, "Copy", copy), button(kind, "Save", save)];
    return element("div", { class: "kind" }, name, ...buttons);
  });
  menu.querySelector(".panel").append(...rows);
}

function currentPicture(node) {
  const { body } = document;
  const outdated = body.classList.contains("stale") || body.hasAttribute("aria-busy");
  if (!outdated) return picture(node);
  throw new Error("The picture would show another text: wait for the explanation of this one.");
}

async function copy(kind, blob) {
  try {
    const { clipboard } = navigator;
    if (kind.format === null) await clipboard.write([new ClipboardItem({ [kind.type]: blob })]);
    else await clipboard.writeText(await blob.text());
    return `${kind.name} copied.`;
  } catch {
    download(kind, blob);
    return `This browser does not let pages copy: ${kind.file} was saved instead.`;
  }
}

async function save(kind, blob) {
  download(kind, blob);
  return `${kind.file} saved.`;
}

function download(kind, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: kind.file });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
