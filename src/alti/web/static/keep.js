// The export menu: an image, a web page, LaTeX or JSON, to the clipboard or as a file.

import { element } from "/paint.js";
import { picture } from "/picture.js";

const KINDS = [
  { name: "Image", file: "alti.png", type: "image/png", format: null },
  { name: "HTML", file: "alti.html", type: "text/html", format: "html" },
  { name: "LaTeX", file: "alti.tex", type: "text/x-tex", format: "latex" },
  { name: "JSON", file: "alti.json", type: "application/json", format: "json" },
];

export function keep(menu, { ask, toast, node, question }) {
  const made = async (kind) => {
    const { body } = document;
    const old = body.classList.contains("stale") || body.hasAttribute("aria-busy");
    if (kind.format === null && old) throw new Error("The picture would be of another text: wait for its explanation.");
    if (kind.format === null) return picture(node());
    const answer = await ask("/api/export", { ...question(), format: kind.format });
    return new Blob([await answer.text()], { type: kind.type });
  };
  const run = (kind, act) => async () => {
    try {
      toast(await act(kind, made));
      menu.open = false;
    } catch (error) {
      toast(error.message);
    }
  };
  menu
    .querySelector(".panel")
    .append(
      ...KINDS.map((kind) =>
        element(
          "div",
          { class: "kind" },
          element("b", { text: kind.name }),
          element("button", {
            type: "button",
            text: "Copy",
            "aria-label": `Copy as ${kind.name}`,
            onclick: run(kind, copy),
          }),
          element("button", {
            type: "button",
            text: "Save",
            "aria-label": `Save as ${kind.name}`,
            onclick: run(kind, save),
          }),
        ),
      ),
    );
}

async function copy(kind, made) {
  const blob = await made(kind);
  try {
    if (kind.format === null) await navigator.clipboard.write([new ClipboardItem({ [kind.type]: blob })]);
    else await navigator.clipboard.writeText(await blob.text());
    return `${kind.name} copied.`;
  } catch {
    download(kind, blob);
    return `This browser does not let pages copy: ${kind.file} was saved instead.`;
  }
}

async function save(kind, made) {
  download(kind, await made(kind));
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
