// The export menu: copies or saves a picture of a panel, a web page, LaTeX or JSON.

import { element } from "/paint.js";
import { picture, printed, vector } from "/picture.js";

const PANELS = {
  results: "the texts",
  answer: "the answer",
  pictured: "the image",
  mixing: "what a token is made of",
  heads: "the heads of a layer",
  lens: "what was said after each layer",
  graph: "the graph",
  whatif: "what if",
  sets: "the set of texts",
};
const KINDS = [
  { name: "Image", file: "alti.png", type: "image/png", draw: picture },
  { name: "SVG", file: "alti.svg", type: "image/svg+xml", draw: vector },
  { name: "PDF", print: printed },
  { name: "HTML", file: "alti.html", type: "text/html", format: "html" },
  { name: "LaTeX", file: "alti.tex", type: "text/x-tex", format: "latex" },
  { name: "JSON", file: "alti.json", type: "application/json", format: "json" },
  {
    name: "JSON with maps",
    file: "alti-maps.json",
    type: "application/json",
    format: "json",
    maps: true,
  },
];

// Whether there is something to draw: a drawer may be closed, or have nothing in it.
function isShown(node) {
  const empty = node.querySelector(':scope > [id$="-body"]')?.hidden ?? false;
  return node.offsetHeight > 0 && node.open !== false && !empty;
}

export function keep(menu, { exported, toast }) {
  const panel = element("select", { id: "panel" });
  for (const [value, text] of Object.entries(PANELS)) {
    panel.append(element("option", { value, text }));
  }
  menu.addEventListener("toggle", () => {
    for (const option of panel.options) {
      option.disabled = option.hidden = !isShown(document.getElementById(option.value));
    }
    const shown = [...panel.options].find(({ disabled }) => !disabled);
    if (shown && panel.selectedOptions[0]?.disabled) panel.value = shown.value;
  });
  const chosen = () => document.getElementById(panel.value);
  const blobOf = async (kind) => {
    if (kind.draw) return currentPicture(kind.draw, chosen());
    const response = await exported(kind);
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
  const print = async ({ print }) => {
    toast("Choose “Save as PDF” where your browser asks for a printer.");
    try {
      await currentPicture(print, chosen());
    } catch (error) {
      toast(error.message);
    }
  };
  const button = (kind, text, onclick) => {
    const about = { type: "button", text, "aria-label": `${text} as ${kind.name}` };
    return element("button", { ...about, onclick });
  };
  const buttonsOf = (kind) =>
    kind.print
      ? [button(kind, "Print or save", () => print(kind))]
      : [button(kind, "Copy", run(kind, copy)), button(kind, "Save", run(kind, save))];
  const rows = KINDS.map((kind) => {
    const about = { class: kind.format ? "kind of-text" : "kind" };
    return element("div", about, element("b", { text: kind.name }), ...buttonsOf(kind));
  });
  const label = element("label", { class: "kind" }, element("b", { text: "Picture of" }), panel);
  menu.querySelector(".panel").append(label, ...rows);
}

function currentPicture(draw, node) {
  const { body } = document;
  const busy = [body, node].some((each) => each.hasAttribute("aria-busy"));
  const outdated = busy || body.classList.contains("stale");
  if (!outdated && !node.hidden) return draw(node);
  throw new Error("The picture would show another text: wait for the explanation of this one.");
}

async function copy(kind, blob) {
  try {
    const { clipboard } = navigator;
    const isImage = kind.type === "image/png";
    if (isImage) await clipboard.write([new ClipboardItem({ [kind.type]: blob })]);
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

export function download(kind, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: kind.file });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
