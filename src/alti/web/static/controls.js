// The card with the inputs: texts, model, methods, class.

import { classesShown, quoted, targetShown } from "/cards.js";
import { showOptions } from "/options.js";
import { element } from "/paint.js";
import { allow, examples, held, link, method, model, MOST } from "/state.js";
import {
  catalogue,
  readsClass,
  readsPairs,
  rivalModels,
  saysWords,
  state,
  toggle,
} from "/state.js";

const TALLEST = 230; // pixels to which a field grows with its text
const at = (id) => document.getElementById(id);
const radios = (name) => document.querySelectorAll(`[name=${name}]`);

// Show the state in the controls; `refresh` sends a new request.
export function showControls(refresh) {
  showTexts();
  showModels();
  at("places").hidden = ["sequence", "encoder", "image", "span"].includes(model().kind);
  at("position").value = state.position ?? "";
  for (const name of ["unit", "since"]) {
    for (const radio of radios(name)) radio.checked = radio.value === state[name];
  }
  showExamples(refresh);
  showMethods(refresh);
  showClasses();
  for (const field of [at("text"), at("pair"), at("other")]) grow(field);
}

function showTexts() {
  const paired = state.pair !== null;
  const compared = state.other !== null;
  at("text").value = state.text;
  at("pair").value = state.pair ?? "";
  at("paired").hidden = !paired;
  at("add").hidden = !readsPairs() || model().kind === "span";
  at("add").textContent = paired ? "Remove the second text" : "Add a second text";
  at("add").setAttribute("aria-pressed", String(paired));
  at("other").value = state.other ?? "";
  at("second").hidden = !compared;
  at("compare").textContent = compared ? "Stop comparing" : "Compare two texts";
  at("compare").setAttribute("aria-pressed", String(compared));
}

// A model that a link asks for and that is not served is named, not replaced by another.
function showModels() {
  const missing = link.missing !== null;
  const options = catalogue.models.map(({ name }) =>
    element("option", { value: name, text: name }),
  );
  const absent = { value: "", text: `${link.missing} (not served)`, disabled: true };
  if (missing) options.unshift(element("option", absent));
  at("model").replaceChildren(...options);
  at("model").value = missing ? "" : state.model;
  at("models").hidden = catalogue.models.length < 2;
  const rivals = rivalModels().map((name) => element("option", { value: name, text: name }));
  at("versus-model").replaceChildren(element("option", { value: "", text: "no other" }), ...rivals);
  at("versus-model").value = state.versus ?? "";
  at("versus-models").hidden = missing || !rivals.length;
}

export function grow(field) {
  if (!field.offsetParent) return; // it grows when it is shown
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, TALLEST)}px`;
}

function showExamples(refresh) {
  const choose = (text, i) => () => {
    Object.assign(state, { text, place: null, target: null, against: null });
    allow();
    showControls(refresh);
    at("examples").children[i].focus(); // the buttons were replaced
    refresh();
  };
  const buttons = examples().map((text, i) =>
    element("button", { type: "button", text, onclick: choose(text, i) }),
  );
  at("examples").replaceChildren(...buttons);
}

function showMethods(refresh) {
  showOptions(state.methods, (i, spec) => {
    state.methods[i] = spec;
    if (method(spec).many_passes) allow();
    showMethods(refresh);
    refresh();
  });
  at("methods-chosen").textContent = state.methods.join(", ");
  const offered = catalogue.methods.filter(({ name }) => model().methods.includes(name));
  const group = (title, methods) =>
    methods.length
      ? [
          element("p", { class: "title", text: title }),
          ...methods.map((entry) => methodOption(entry, refresh)),
        ]
      : [];
  at("methods")
    .querySelector(".panel")
    .replaceChildren(
      element("p", { class: "faint", text: `Choose up to ${MOST}.` }),
      ...group("Recommended for this model", offered.filter(isRecommended)),
      ...group(
        "What speaks for and against a class",
        offered.filter((entry) => entry.classes && !isRecommended(entry)),
      ),
      ...group(
        "How the input is mixed",
        offered.filter((entry) => !entry.classes && !isRecommended(entry)),
      ),
    );
}

const isRecommended = ({ name }) => name === model().recommended;

function methodOption(entry, refresh) {
  const on = state.methods.some((spec) => method(spec) === entry);
  const disabled = on ? state.methods.length === 1 : state.methods.length >= MOST;
  const box = element("input", { type: "checkbox", value: entry.name, checked: on, disabled });
  box.addEventListener("change", () => {
    toggle(entry.name, box.checked);
    showMethods(refresh);
    at("methods").querySelector(`[value="${entry.name}"]`).focus();
    refresh();
  });
  const name = element("b", { text: entry.name });
  const about = element("span", {}, name, element("small", { text: entry.what }));
  return element("label", { class: "option" }, box, about);
}

// What a link asks for that waits for the user's consent: another model, or expensive methods.
export function showHeld() {
  if (link.missing !== null) {
    at("held").hidden = false;
    at("held-why").textContent =
      `The link asks for the model ${link.missing}, which this server does not have. ` +
      "Another model's explanation would be another one.";
    at("compute").textContent = `Explain with ${state.model} instead`;
    at("link-hint").hidden = true;
    return;
  }
  const names = [...new Set(held().map((spec) => method(spec).name))];
  const list = new Intl.ListFormat("en").format(names);
  const several = names.length > 1;
  const are = several ? "are" : "is";
  const run = several ? "they run" : "it runs";
  at("held").hidden = !names.length;
  at("held-why").textContent = `The link asks for ${list}, which ${are} not computed yet.`;
  at("compute").textContent = `Compute ${list}: ${run} the model many times`;
  at("link-hint").textContent = link.note;
  at("link-hint").hidden = !link.note;
}

// The labels of classes shown before: a chosen class stays even when it is no longer likely.
const labels = new Map();

function offeredClasses() {
  const named = model().labels.map((label, index) => ({ label, index }));
  const likely = classesShown().filter(({ index }) => index >= named.length); // not among the named
  const offered = [...named, ...likely];
  for (const { label, index } of offered) labels.set(`${state.model} ${index}`, label);
  for (const index of [state.target, state.against]) {
    if (index === null || offered.some((entry) => entry.index === index)) continue;
    offered.push({ index, label: labels.get(`${state.model} ${index}`) ?? `class ${index}` });
  }
  return offered;
}

// Of a language model any token may be named: fields to write in, with the likely ones to choose.
function showWords(offered) {
  const words = saysWords();
  at("saids").hidden = at("rathers").hidden = !words;
  if (!words) return;
  at("classes").hidden = at("rivals").hidden = true;
  at("likely").replaceChildren(...offered.map(({ label }) => element("option", { value: label })));
  at("said").value = state.said ?? "";
  at("rather").value = state.rather ?? "";
  at("said").disabled = at("rather").disabled = !readsClass();
}

export function showClasses() {
  const offered = offeredClasses();
  const target = state.target ?? targetShown();
  const rivals = offered.filter(({ index }) => index !== target);
  const option = ({ label, index }) => element("option", { value: index, text: quoted(label) });
  const predicted = element("option", { value: "", text: "as predicted" });
  at("class").replaceChildren(predicted, ...offered.map(option));
  at("class").value = String(state.target ?? "");
  const others = element("option", { value: "", text: "all others" });
  at("rival").replaceChildren(others, ...rivals.map(option));
  at("rival").value = String(state.against ?? "");
  at("class").disabled = at("rival").disabled = !readsClass();
  at("classes").hidden = !offered.length;
  at("rivals").hidden = offered.length < 3; // of two classes, the other one is all others
  showWords(offered);
  const hinted = !readsClass() && offered.length > 0;
  at("class-hint").hidden = !hinted;
  // a hidden hint would still be read aloud with its field
  if (hinted) at("class").setAttribute("aria-describedby", "class-hint");
  else at("class").removeAttribute("aria-describedby");
  const verb = state.methods.length > 1 ? "show" : "shows";
  at("class-hint").textContent =
    `${state.methods.join(" and ")} ${verb} the same for every class: ` +
    "add consensus or absence to choose one.";
}
