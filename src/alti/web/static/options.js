// The options of the chosen methods, as the methods declare them: kinds, bounds, defaults and help.

import { element } from "/paint.js";
import { method } from "/state.js";

const at = (id) => document.getElementById(id);

const settingsOf = (spec) =>
  Object.fromEntries(
    spec
      .split(":")
      .slice(1)
      .map((part) => part.split("=")),
  );

// Show a group of fields for each method; `put` is called with the number of a method and what it
// is with the value that was taken.
export function showOptions(specs, put) {
  const groups = specs.map((spec, i) => group(spec, i, put)).filter(Boolean);
  at("options").parentNode.hidden = !groups.length;
  const count = specs.reduce((sum, spec) => sum + Object.keys(settingsOf(spec)).length, 0);
  at("options-chosen").textContent = count ? `${count} changed` : "as they are";
  at("options")
    .querySelector(".panel")
    .replaceChildren(...groups);
}

function group(spec, i, put) {
  const { name, declared } = method(spec);
  if (!declared.length) return null;
  const given = settingsOf(spec);
  const take = (changed, focus) => {
    put(i, [name, ...Object.entries(changed).map(([key, value]) => `${key}=${value}`)].join(":"));
    (focus ? at(focus) : at("options").querySelector("input, select"))?.focus();
  };
  const fields = declared.map((option) => field(option, given, `option-${i}-${option.name}`, take));
  const title = element("legend", { class: "title", text: name });
  const parts = [title, ...fields];
  if (Object.keys(given).length) {
    const reset = () => take({}, null);
    parts.push(
      element("button", { type: "button", class: "plain", text: `Reset ${name}`, onclick: reset }),
    );
  }
  return element("fieldset", { class: "settings" }, ...parts);
}

function field(option, given, id, take) {
  const value = given[option.name] ?? option.default;
  const input = option.choices.length ? menu(option, id, value) : box(option, id, value);
  const problem = element("small", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  input.addEventListener("change", () => {
    const message = wrong(option, input.value);
    problem.textContent = message;
    input.setAttribute("aria-invalid", String(Boolean(message)));
    if (message) return;
    const rest = { ...given, [option.name]: input.value };
    if (input.value === String(option.default)) delete rest[option.name];
    take(rest, id);
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
