// The options of the chosen methods, as the methods declare them: kinds, bounds, defaults and help.

import { element } from "/paint.js";
import { allow, method, state } from "/state.js";

const at = (id) => document.getElementById(id);

export const settingsOf = (spec) =>
  Object.fromEntries(
    spec
      .split(":")
      .slice(1)
      .map((part) => part.split("=")),
  );

// Show a group of fields for each method; `changed` is called after a value was taken.
export function showOptions(changed) {
  const groups = state.methods.map((spec, i) => group(spec, i, changed)).filter(Boolean);
  at("options").hidden = !groups.length;
  const count = state.methods.reduce((sum, spec) => sum + Object.keys(settingsOf(spec)).length, 0);
  at("options-chosen").textContent = count ? `${count} changed` : "as they are";
  at("options")
    .querySelector(".panel")
    .replaceChildren(...groups);
}

function group(spec, i, changed) {
  const { name, declared } = method(spec);
  if (!declared.length) return null;
  const given = settingsOf(spec);
  const fields = declared.map((option) => field(option, given, i, changed));
  const title = element("legend", { class: "title", text: name });
  const parts = [title, ...fields];
  if (Object.keys(given).length) {
    const reset = () => set(i, name, {}, changed, null);
    parts.push(
      element("button", { type: "button", class: "plain", text: `Reset ${name}`, onclick: reset }),
    );
  }
  return element("fieldset", { class: "settings" }, ...parts);
}

function field(option, given, i, changed) {
  const id = `option-${i}-${option.name}`;
  const value = given[option.name] ?? option.default;
  const input = option.choices.length ? menu(option, id, value) : box(option, id, value);
  const problem = element("small", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  input.addEventListener("change", () => {
    const message = wrong(option, input.value);
    problem.textContent = message;
    input.setAttribute("aria-invalid", String(Boolean(message)));
    if (message) return;
    const rest = { ...settingsOf(state.methods[i]), [option.name]: input.value };
    if (input.value === String(option.default)) delete rest[option.name];
    set(i, method(state.methods[i]).name, rest, changed, id);
  });
  const help = element("small", { id: `${id}-help`, text: option.help });
  input.setAttribute("aria-describedby", `${id}-help ${id}-wrong`);
  return element(
    "div",
    { class: "setting" },
    element("label", { for: id, text: option.name }),
    input,
    help,
    problem,
  );
}

function menu(option, id, value) {
  const choices = option.choices.map((text) => element("option", { value: text, text }));
  const select = element("select", { id }, ...choices);
  select.value = value;
  return select;
}

function box(option, id, value) {
  if (option.kind === "text") return element("input", { id, type: "text", value });
  const step = option.kind === "integer" ? 1 : "any";
  return element("input", {
    id,
    type: "number",
    value,
    step,
    min: option.lowest,
    max: option.highest,
  });
}

// What is wrong with a value, in one sentence; empty if nothing is.
function wrong({ name, kind, lowest, highest }, text) {
  if (kind === "choice" || kind === "text") return "";
  const number = Number(text);
  const whole = kind === "integer";
  const right = text !== "" && Number.isFinite(number) && (!whole || Number.isInteger(number));
  const inside = (lowest === null || number >= lowest) && (highest === null || number <= highest);
  if (right && inside) return "";
  const from = lowest === null ? "" : ` from ${lowest}`;
  const to = highest === null ? "" : ` to ${highest}`;
  return `${name} takes a ${whole ? "whole number" : "number"}${from}${to}.`;
}

function set(i, name, given, changed, focus) {
  const parts = Object.entries(given).map(([key, value]) => `${key}=${value}`);
  state.methods[i] = [name, ...parts].join(":");
  if (method(name).many_passes) allow();
  changed();
  (focus ? at(focus) : at("options").querySelector("input, select"))?.focus();
}
