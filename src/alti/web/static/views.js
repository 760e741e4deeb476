// A set of views: addresses of this page with a title each, kept in one file.

import { VIEWS } from "/files.js";
import { download } from "/keep.js";
import { element } from "/paint.js";
import { asked, methodOf, promptShown } from "/prompt.js";
import { address, state } from "/state.js";

const MOST = 200;
const at = (id) => document.getElementById(id);
const views = [];

export function wireViewSet({ toast }) {
  at("view-keep").addEventListener("click", () => {
    if (views.length >= MOST) {
      toast(`A set holds up to ${MOST} views: save this one and begin another.`);
      return;
    }
    views.push({ title: titleOf(), address: address() });
    show();
    toast("View kept.");
  });
  at("view-save").addEventListener("click", () => {
    const content = JSON.stringify({ kind: VIEWS, version: 1, views }, null, 1);
    download({ file: "alti-views.json" }, new Blob([content], { type: "application/json" }));
    toast("alti-views.json saved.");
  });
  show();
}

// Adds what there is room for, and says so.
export function addViews(more) {
  const added = more.slice(0, MOST - views.length);
  views.push(...added);
  show();
  const all = added.length === more.length;
  return all
    ? `${added.length} views opened.`
    : `${added.length} of ${more.length} views opened: a set holds up to ${MOST}.`;
}

const short = (text) => {
  const line = text.trim().split(/\s+/).join(" ");
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
};

function titleOf() {
  if (state.ask === "answer") {
    const answer = short(asked.answer) || "no answer yet";
    return `${short(promptShown())} → ${answer} · ${methodOf()} · ${state.model}`;
  }
  const cut = short(state.text);
  const layer = state.layer === null ? "" : `, layer ${state.layer + 1}`;
  const models = state.versus ? `${state.model} and ${state.versus}` : state.model;
  return `${cut} · ${state.methods.join(", ")} · ${models}${layer}`;
}

function show() {
  at("view-save").disabled = !views.length;
  at("view-list").replaceChildren(...views.map(line));
}

function line(view, i) {
  const open = () => {
    if (location.hash === view.address) return;
    location.hash = view.address; // read as any link is
  };
  const remove = () => {
    views.splice(i, 1);
    show();
    at("view-keep").focus();
  };
  return element(
    "li",
    {},
    element("button", {
      type: "button",
      class: "plain",
      dir: "auto",
      text: view.title || `view ${i + 1}`,
      onclick: open,
    }),
    element("button", {
      type: "button",
      class: "round",
      "aria-label": `Remove ${view.title}`,
      text: "×",
      onclick: remove,
    }),
  );
}
