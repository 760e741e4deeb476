// The card of an answer: its title, and its tokens with their probabilities.

import { percent } from "/cards.js";
import { dragged } from "/dragging.js";
import { element } from "/paint.js";

export function chanceOf({ probability, log_prob, log_prob_against }) {
  if (log_prob_against !== null) {
    return `log p ${log_prob.toFixed(2)} rather than ${log_prob_against.toFixed(2)}`.replaceAll(
      "-",
      "−",
    );
  }
  if (probability !== null && probability >= 0.0005) return percent(probability);
  return log_prob === null ? "" : `log p ${log_prob.toFixed(1)}`.replace("-", "−");
}

export function titleOf(view, whole, several) {
  const answer = view.log_prob_against === null ? "the answer" : view.label; // names the rival too
  const what = element("em", { dir: "auto", text: whole ? answer : `“${view.label || "␣"}”` });
  const title = element("h2", { id: "answer-title" }, "What ", what, " rests on");
  const together = several ? "all its tokens together: " : "";
  const by = `${together}${chanceOf(view)} · as ${view.method} sees it in ${view.model}`;
  return element("header", {}, title, element("p", { class: "faint", text: by }));
}

// The answer: every token with its probability, to be clicked or dragged over; `choose` is called
// with the tokens that are chosen, [first, end], or null for all.
export function answerLine(tokens, [first, end], choose) {
  const spans = tokens.map((token, i) => tokenNode(token, i, i >= first && i < end));
  const all = first === 0 && end === tokens.length;
  const about = {
    class: `alti-text written${all ? " whole" : ""}`,
    dir: "auto",
    lang: "",
    role: "listbox",
  };
  const names = { "aria-label": "The answer, token by token", "aria-multiselectable": "true" };
  const line = element("div", { ...about, ...names }, ...spans);
  dragged(line, spans, (from, to) => {
    choose(from === 0 && to === tokens.length ? null : [from, to]);
  });
  return line;
}

function tokenNode({ text, name, probability }, i, on) {
  const shown = text.replaceAll("\n", "↵\n"); // of a part of a letter: nothing
  const node = element("span", {
    role: "option",
    "aria-selected": String(on),
    "aria-label": `${name}, ${percent(probability)}`,
    title: `${name}: ${percent(probability)}`,
    "data-token": i,
    tabindex: i ? "-1" : "0",
    text: shown,
  });
  node.style.setProperty("--sure", probability.toFixed(3));
  return node;
}

export function howTo(whole, chooseAll) {
  const how = element("span", { class: "how", text: " Click a token, or drag over several." });
  const note = element("p", { class: "faint" }, "The line below a token is its probability.", how);
  if (!whole) {
    const about = { type: "button", class: "plain", id: "whole", text: "The whole answer" };
    note.append(" ", element("button", { ...about, onclick: chooseAll }));
  }
  return note;
}

// Where the focus goes when the card is drawn again: to the same token or word.
export function focusIn(card) {
  const active = document.activeElement;
  if (!card.contains(active)) return null;
  if (active.dataset.token) return `[data-token="${active.dataset.token}"]`;
  const words = [...card.querySelectorAll(".aligned ol:last-child button")];
  const word = words.indexOf(active);
  return word < 0
    ? ".written [tabindex='0']"
    : `.aligned ol:last-child li:nth-child(${word + 1}) button`;
}
