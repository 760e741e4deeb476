// An answer of a language model: it is written token by token, and a part of it is explained.

import { alignment } from "/alignment.js";
import { answerLine, chanceOf, focusIn, howTo, titleOf } from "/answercard.js";
import { afterLayer, layerSlider, rowsByStart } from "/answerlayers.js";
import { hideDeeper, showDeeper, wireDeeper } from "/answerdeeper.js";
import { grow } from "/controls.js";
import { showOptions } from "/options.js";
import { element } from "/paint.js";
import { answerFields, asked, fitAsked, methodOf, promptFields } from "/prompt.js";
import { promptIsEmpty, recallAsked, rememberAsked, showPrompt } from "/prompt.js";
import { promptText, rankedList, repaint } from "/prompted.js";
import { ask } from "/server.js";
import { link, method, model, remember, state } from "/state.js";
import { showWhatIf } from "/whatif.js";
import { newTicket, offer, showNothing, watch } from "/waiting.js";

const KEPT = 50; // explanations that need not be computed again
const at = (id) => document.getElementById(id);
const explained = new Map(); // question -> view
let page = null; // { showError, redraw }
let pending = null; // aborts the current request
let tokens = []; // of the answer
let exact = false; // whether their probabilities are those of the explanation, not of the writing
let view = null;
let aligned = { key: "", found: null }; // the alignment of an encoder–decoder
let picked = null; // the piece of the prompt that was clicked
let shownModel = null; // the model that `asked` was fitted to

export const isAnswering = () => state.ask === "answer" && link.missing === null;

export function wireAnswer(callbacks) {
  page = callbacks;
  for (const radio of document.querySelectorAll("[name=ask]")) {
    radio.addEventListener("change", () => {
      state.ask = radio.value;
      page.redraw();
    });
  }
  for (const radio of document.querySelectorAll("[name=form]")) {
    radio.addEventListener("change", () => {
      asked.form = radio.value;
      fitAsked();
      promptChanged();
      showAsked();
    });
  }
  wireFields();
  wireDeeper();
  document.addEventListener("pick-piece", ({ detail }) => {
    picked = detail;
    showChange();
  });
  at("write").addEventListener("click", write);
  at("explain-answer").addEventListener("click", () => explain(null));
  at("versus").addEventListener("click", () => {
    asked.rival = asked.rival === null ? "" : null;
    keepAsked();
    showPrompt(promptChanged);
    if (asked.rival === null) explain(null);
    else at("answer-rival").focus();
  });
  addEventListener("hashchange", () => (shownModel = null));
}

function wireFields() {
  at("answer-text").addEventListener("input", ({ target }) => {
    Object.assign(asked, { answer: target.value, ids: null, part: null });
    exact = false;
    grow(target);
    forget();
  });
  at("answer-rival").addEventListener("input", ({ target }) => {
    asked.rival = target.value;
    grow(target);
    forget();
  });
  at("new").addEventListener("change", ({ target }) => {
    const wanted = Math.round(Number(target.value)) || 24;
    asked.new = Math.max(1, Math.min(model().written, wanted));
    target.value = asked.new;
    keepAsked();
  });
  for (const [id, name] of [
    ["by", "by"],
    ["answer-method", "method"],
  ]) {
    at(id).addEventListener("change", ({ target }) => choose(name, target.value));
  }
  at("writing").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (asked.answer) explain(null);
    else write();
  });
}

// How an answer is explained: by what, and by which method with which options.
function choose(name, value) {
  asked[name] = value;
  showAsked();
  if (asked.answer) explain(asked.part);
}

function showAsked() {
  showPrompt(promptChanged);
  showOptions([methodOf()], (_, spec) => choose("method", spec));
}

// Another prompt has another answer: what was explained is out of date, what was typed stays.
function promptChanged() {
  asked.part = null;
  exact = false; // the same tokens have other probabilities
  forget();
}

function forget() {
  pending?.abort();
  pending = null;
  document.body.removeAttribute("aria-busy");
  if (view) {
    document.body.classList.add("stale");
    offer("The prompt or an answer has changed: this is out of date.", nextStep());
  } else showNothing();
  showWhatIf(null);
  hideDeeper();
  page.showError("");
  keepAsked();
}

function keepAsked() {
  rememberAsked();
  remember();
}

// Show the mode, and the answer that a link holds.
export function redrawAnswer() {
  at("asks").hidden = !model().writes || model().kind === "seq2seq" || link.missing !== null;
  for (const radio of document.querySelectorAll("[name=ask]"))
    radio.checked = radio.value === state.ask;
  document.body.classList.toggle("answering", isAnswering());
  at("writing").hidden = !isAnswering();
  at("answer").hidden = true;
  showWhatIf(null);
  hideDeeper();
  if (!isAnswering()) {
    forgetOther();
    return;
  }
  if (shownModel !== state.model) {
    const other = shownModel !== null; // whose tokens are others
    view = null;
    tokens = [];
    exact = false;
    recallAsked();
    if (other) Object.assign(asked, { ids: null, part: null });
    shownModel = state.model;
  }
  showAsked();
  document.body.classList.remove("stale");
  page.showError("");
  showNothing();
  if (view) show();
  else if (asked.answer) explainOrOffer();
}

// Anyone can make a link: a method that runs the model many times waits for the user's consent.
function explainOrOffer() {
  const { name, many_passes: many } = method(methodOf());
  if (many) offer(`${name} runs the model many times: it is computed when you ask for it.`);
  else explain(asked.part);
}

function forgetOther() {
  pending?.abort();
  pending = null;
}

// ---- requests

// One request at a time; what it throws is shown, unless another one has begun.
async function run(work) {
  pending?.abort();
  const controller = new AbortController();
  pending = controller;
  page.showError("");
  document.body.setAttribute("aria-busy", "true");
  let message = "";
  try {
    await work(controller.signal);
  } catch (error) {
    message = error.message;
  }
  if (controller !== pending) return;
  pending = null;
  showNothing();
  document.body.removeAttribute("aria-busy");
  document.body.classList.toggle("stale", Boolean(message) && view !== null);
  page.showError(message);
}

async function posted(kind, question, signal, wrote = null) {
  const ticket = newTicket();
  const stop = watch(ticket, wrote);
  try {
    const response = await ask(`/api/${kind}`, { model: state.model, ...question, ticket }, signal);
    return await response.json();
  } finally {
    stop();
  }
}

export const request = (kind, more, signal) => posted(kind, { ...answerFields(), ...more }, signal);

function write() {
  if (promptIsEmpty()) {
    page.showError("There is nothing to answer: type a prompt.");
    return;
  }
  Object.assign(asked, { answer: "", ids: null, part: null });
  view = null;
  tokens = [];
  exact = false;
  showWritten([]);
  showWhatIf(null);
  hideDeeper();
  run(async (signal) => {
    const question = { ...promptFields(), tokens: asked.new };
    const found = await posted("generate", question, signal, showWritten);
    showWritten(found.tokens);
    Object.assign(asked, { ids: found.ids });
    await load(null, signal);
  });
}

// The tokens that were written so far.
function showWritten(written) {
  if (written.length < tokens.length) return;
  tokens = written;
  asked.ids = tokens.length ? tokens.map(({ id }) => id) : null;
  fillAnswer();
  at("answer").hidden = false;
  const title = element("h2", { id: "answer-title", text: "The model writes …" });
  at("answer").replaceChildren(element("header", {}, title), answerLine(tokens, [0, 0], explain));
}

// What the model wrote, as text that can be edited.
function fillAnswer() {
  asked.answer = tokens.map(({ text }) => text).join("");
  at("answer-text").value = asked.answer;
  grow(at("answer-text"));
}

export function cancelAnswer() {
  if (pending === null) {
    if (asked.answer) explain(asked.part);
    else write();
    return;
  }
  pending.abort();
  pending = null;
  document.body.removeAttribute("aria-busy");
  if (view) document.body.classList.add("stale");
  else at("answer").hidden = !tokens.length;
  if (!view && tokens.length) at("answer-title").textContent = "What was written so far";
  keepAsked();
  const so = tokens.length ? "Cancelled: the answer so far is kept." : "Cancelled.";
  offer(so, nextStep());
}

const nextStep = () => (asked.answer ? "Explain it" : "Let the model write");

function explain(part) {
  if (promptIsEmpty() || !asked.answer) {
    page.showError(
      promptIsEmpty()
        ? "There is no prompt: type one."
        : "There is no answer: let the model write, or type one.",
    );
    return;
  }
  run((signal) => load(part, signal));
}

async function load(part, signal) {
  asked.part = part;
  const question = answerFields();
  const key = JSON.stringify([state.model, question]);
  if (!explained.has(key)) {
    const found = await posted("answer", { ...question, tokens: !exact }, signal);
    if (explained.size >= KEPT) explained.delete(explained.keys().next().value);
    explained.set(key, found);
  }
  if (signal.aborted) return;
  picked = null;
  view = explained.get(key);
  if (view.answer) {
    tokens = view.answer;
    exact = true;
    if (asked.ids) fillAnswer();
  }
  keepAsked();
  show();
}

// ---- the card

function show() {
  const node = at("answer");
  const focused = focusIn(node);
  node.hidden = false;
  document.body.classList.remove("stale");
  const whole = asked.part === null;
  const [first, end] = asked.part ?? [0, tokens.length];
  const notes = view.notes.map((text) => element("p", { class: "hint", text }));
  node.replaceChildren(
    titleOf(view, whole, end - first > 1),
    answerLine(tokens, [first, end], explain),
    howTo(whole, () => explain(null)),
    ...notes,
    promptText(view),
    layerSlider(model().layers, rowsOfLayers, paintLayer),
    rankedList(view),
  );
  at("status").textContent = `${view.label}, ${chanceOf(view)}`;
  showChange();
  showInside();
  showAlignment();
  if (focused) node.querySelector(focused)?.focus({ preventScroll: true });
}

// What the heads do, and what each layer would have said, where the chosen part begins.
function showInside() {
  const { answer, answer_ids, part } = answerFields();
  const token = part?.[0] ?? 0;
  const question = { ...promptFields(), answer, answer_ids, token };
  showDeeper({ model: state.model, ...question }, tokens[token].name);
}

// Of an encoder–decoder: which word of the source each word of the target comes from.
async function showAlignment() {
  if (model().kind !== "seq2seq") return;
  const { text, answer, answer_ids } = answerFields();
  const key = JSON.stringify([state.model, text, answer, answer_ids]);
  if (aligned.key !== key) {
    aligned = { key, found: null };
    try {
      const question = { text, answer, answer_ids, method: "alti" };
      aligned.found = await posted("alignment", question, new AbortController().signal);
    } catch {
      return; // no words to align: the scores above say what there is
    } finally {
      if (pending === null) showNothing();
    }
    if (aligned.key !== key || !isAnswering()) return;
  }
  if (!aligned.found) return;
  document.querySelector("#alignment")?.remove();
  at("answer").append(alignment(aligned.found, (part) => explain(part)));
}

// What the chosen tokens were made of after each layer; null if that fails.
async function rowsOfLayers() {
  const { method: _, against: __, ...question } = answerFields();
  let rows = null;
  await run(async (signal) => {
    rows = rowsByStart(await posted("layers", question, signal));
  });
  return rows;
}

const paintLayer = (row, layer) => repaint(row ? afterLayer(view, row, layer) : view);

// What could be left out of the prompt.
function showChange() {
  const { part, against, ...question } = answerFields();
  if (against !== null) {
    showWhatIf(null); // two answers have no one probability
    return;
  }
  delete question.by;
  delete question.method;
  const own = { chat: ["message"], documents: ["document"] }[asked.form] ?? [];
  const piece = picked === null ? null : view.pieces[picked];
  showWhatIf({
    question: { ...question, part },
    method: view.method,
    place: piece ? [0, piece.start] : null,
    name: piece?.text ?? "",
    units: [...new Set([asked.by === "token" ? "word" : asked.by, "word", "sentence", ...own])],
  });
}
