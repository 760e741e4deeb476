// The card with the question: texts, model, methods, class.

import { classesShown, quoted, targetShown } from "/cards.js";
import { element } from "/paint.js";
import { allow, examples, held, link, method, model, MOST } from "/state.js";
import { readsClass, readsPairs, state, toggle, told } from "/state.js";

const TALLEST = 230; // pixels of a field that grows with its text
const at = (id) => document.getElementById(id);
const radios = (name) => document.querySelectorAll(`[name=${name}]`);

// What the controls say is what the state is; `refresh` asks the server again.
export function showControls(refresh) {
  const two = state.other !== null;
  at("text").value = state.text;
  at("pair").value = state.pair ?? "";
  at("paired").hidden = state.pair === null;
  at("add").hidden = !readsPairs();
  at("add").textContent = state.pair === null ? "Add a second text" : "Without a second text";
  at("add").setAttribute("aria-pressed", String(state.pair !== null));
  at("other").value = state.other ?? "";
  at("second").hidden = !two;
  at("compare").textContent = two ? "Stop comparing" : "Compare two texts";
  at("compare").setAttribute("aria-pressed", String(two));
  at("models").hidden = told.models.length < 2;
  at("model").value = state.model;
  at("places").hidden = ["sequence", "encoder"].includes(model().kind);
  at("position").value = state.position ?? "";
  for (const name of ["unit", "since"]) for (const radio of radios(name)) radio.checked = radio.value === state[name];
  showExamples(refresh);
  showMethods(refresh);
  showClasses();
  for (const field of [at("text"), at("pair"), at("other")]) grow(field);
}

export function grow(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, TALLEST)}px`;
}

function showExamples(refresh) {
  const take = (text, i) => () => {
    Object.assign(state, { text, place: null, target: null, against: null });
    allow();
    showControls(refresh);
    at("examples").children[i].focus(); // it was made again
    refresh();
  };
  const buttons = examples().map((text, i) => element("button", { type: "button", text, onclick: take(text, i) }));
  at("examples").replaceChildren(...buttons);
}

function showMethods(refresh) {
  at("methods-chosen").textContent = state.methods.join(", ");
  const offered = told.methods.filter((one) => model().methods.includes(one.name));
  const group = (title, some) => [element("p", { class: "title", text: title }), ...some.map(option)];
  const option = (one) => {
    const on = state.methods.some((spec) => method(spec) === one);
    const fixed = on ? state.methods.length === 1 : state.methods.length >= MOST;
    const box = element("input", { type: "checkbox", value: one.name, checked: on, disabled: fixed });
    box.addEventListener("change", () => {
      toggle(one.name, box.checked);
      showMethods(refresh);
      at("methods").querySelector(`[value="${one.name}"]`).focus();
      refresh();
    });
    const what = one.what.replace(/^[^:]*: (.)/, (_, first) => first.toUpperCase()); // without its name
    const about = element("span", {}, element("b", { text: one.name }), element("small", { text: what }));
    return element("label", { class: "option" }, box, about);
  };
  at("methods")
    .querySelector(".panel")
    .replaceChildren(
      element("p", { class: "faint", text: `Choose up to ${MOST}.` }),
      ...group(
        "How the input is mixed",
        offered.filter((one) => !one.classes),
      ),
      ...group(
        "What speaks for and against a class",
        offered.filter((one) => one.classes),
      ),
    );
}

// What a link chose and nobody has asked for yet.
export function showHeld() {
  const names = [...new Set(held().map((spec) => method(spec).name))];
  const list = new Intl.ListFormat("en").format(names);
  const many = names.length > 1;
  at("held").hidden = !names.length;
  const [are, run] = many ? ["are", "they run"] : ["is", "it runs"];
  at("held-why").textContent = `The link chose ${list}, which ${are} not computed yet.`;
  at("compute").textContent = `Compute ${list}: ${run} the model many times`;
  at("link-hint").textContent = link.note;
  at("link-hint").hidden = !link.note;
}

const labels = new Map(); // of classes that were offered once: a chosen one stays, also when it is no longer likely

function offeredClasses() {
  const named = model().labels.map((label, index) => ({ label, index }));
  const likely = classesShown().filter((one) => one.index >= named.length); // of many labels only the first are named
  const offered = [...named, ...likely];
  for (const { label, index } of offered) labels.set(`${state.model} ${index}`, label);
  for (const index of [state.target, state.against]) {
    if (index === null || offered.some((one) => one.index === index)) continue;
    offered.push({ index, label: labels.get(`${state.model} ${index}`) ?? `class ${index}` });
  }
  return offered;
}

export function showClasses() {
  const offered = offeredClasses();
  const rivals = offered.filter((one) => one.index !== (state.target ?? targetShown()));
  const option = ({ label, index }) => element("option", { value: index, text: quoted(label) });
  at("class").replaceChildren(element("option", { value: "", text: "as predicted" }), ...offered.map(option));
  at("class").value = String(state.target ?? "");
  at("rival").replaceChildren(element("option", { value: "", text: "all others" }), ...rivals.map(option));
  at("rival").value = String(state.against ?? "");
  at("class").disabled = at("rival").disabled = !readsClass();
  at("classes").hidden = !offered.length;
  at("rivals").hidden = offered.length < 3; // of two classes one is all others
  at("class-hint").hidden = readsClass() || !offered.length;
  const verb = state.methods.length > 1 ? "show" : "shows";
  at("class-hint").textContent =
    `${state.methods.join(" and ")} ${verb} the same for every class: add absence or linear to switch it.`;
}
