// The inputs for what a model writes: a text, a chat or documents, and the answer to explain.

import { grow } from "/controls.js";
import { element } from "/paint.js";
import { catalogue, method, model, state } from "/state.js";

const ROLES = ["user", "assistant", "system"];
const UNITS = {
  word: "words",
  sentence: "sentences",
  line: "lines",
  document: "documents",
  message: "messages",
  token: "sub-words",
};
const EIFFEL = [
  "The Eiffel Tower was finished in 1889. It was built for a world's fair in Paris.",
  "Big Ben is the name of a bell in London. The tower that holds it was finished in 1859.",
];
const START = {
  form: "text", // or "chat" or "documents"
  text: "The capital of France is",
  messages: [{ role: "user", content: "Which city is the capital of France?" }],
  documents: EIFFEL,
  question: "When was the Eiffel Tower finished?",
  answer: "",
  ids: null, // the tokens of an answer that the model wrote; null: it was typed
  rival: null, // another answer
  new: 24, // tokens that the model may write
  method: null, // with its options, as in alti:p=2; null: the recommended one
  by: "word",
  part: null, // tokens of the answer: [first, end]; null: all
};
const SOURCE = "The house is wonderful, but the garden is small.";

export const asked = structuredClone(START);
const at = (id) => document.getElementById(id);
const radios = (name) => document.querySelectorAll(`[name=${name}]`);

const isText = (value) => typeof value === "string";
const isPart = (value) =>
  Array.isArray(value) && value.length === 2 && value.every((number) => Number.isInteger(number));
const isMessage = (value) => isText(value?.role) && isText(value?.content);
const FITS = {
  form: (value) => ["text", "chat", "documents"].includes(value),
  text: isText,
  messages: (value) => Array.isArray(value) && value.length > 0 && value.every(isMessage),
  documents: (value) => Array.isArray(value) && value.length > 0 && value.every(isText),
  question: isText,
  answer: isText,
  ids: (value) => Array.isArray(value) && value.every((id) => Number.isInteger(id)),
  rival: isText,
  new: (value) => Number.isInteger(value) && value > 0,
  method: (value) => isText(value) && Boolean(method(value)),
  by: (value) => Object.hasOwn(UNITS, value),
  part: isPart,
};

// Whatever a link holds, what is asked can be shown.
export function recallAsked() {
  Object.assign(asked, structuredClone(START));
  if (model().kind === "seq2seq") asked.text = SOURCE;
  else if (model().chats) asked.form = "chat";
  let given = {};
  try {
    given = JSON.parse(state.prompt) ?? {};
  } catch {
    // no JSON: nothing is asked
  }
  for (const [name, fits] of Object.entries(FITS)) {
    if (Object.hasOwn(given, name) && fits(given[name])) asked[name] = given[name];
  }
  fitAsked();
}

// Adapt what is asked to the model.
export function fitAsked() {
  if (!model().writes) return;
  const plain = model().kind === "seq2seq" || (asked.form === "chat" && !model().chats);
  if (plain) asked.form = "text";
  if (!offered().includes(method(methodOf()).name)) asked.method = null;
  if (!units().includes(asked.by)) asked.by = "word";
  asked.new = Math.min(asked.new, model().written);
}

export function rememberAsked() {
  state.prompt = JSON.stringify(asked);
}

export const methodOf = () => asked.method ?? model().recommended;

// Methods that run the model many times come last.
const offered = () =>
  catalogue.methods
    .filter(({ name }) => model().methods.includes(name) && name !== "random")
    .sort((a, b) => a.many_passes - b.many_passes)
    .map(({ name }) => name);

const units = () => {
  const own = { chat: ["message"], documents: ["document"] }[asked.form] ?? [];
  return ["word", "sentence", ...own, "line", "token"];
};

// The fields of a request.
export function promptFields() {
  const { form, text, messages, documents, question } = asked;
  if (form === "chat") return { chat: messages };
  if (form === "documents") return { text: question, documents: documents.filter((d) => d.trim()) };
  return { text };
}

export const answerFields = () => ({
  ...promptFields(),
  ...(asked.ids ? { answer_ids: asked.ids } : { answer: asked.answer }),
  part: asked.part,
  against: asked.rival?.trim() ? asked.rival : null,
  method: methodOf(),
  by: asked.by,
});

// What is asked, in a line: the last message of a chat, the question about documents.
export function promptShown() {
  const { form, text, messages, question } = asked;
  if (form === "chat") return messages.at(-1).content;
  return form === "documents" ? question : text;
}

export function promptIsEmpty() {
  const { form, text, messages, documents, question } = asked;
  if (form === "chat") return !messages.some(({ content }) => content.trim());
  if (form === "documents") return !question.trim() || !documents.some((each) => each.trim());
  return !text.trim();
}

// ---- the fields on the page

// Show what is asked; `changed` is called with whether the prompt is another one.
export function showPrompt(changed) {
  const source = model().kind === "seq2seq";
  at("forms").hidden = source;
  at("chats").hidden = !model().chats;
  for (const radio of radios("form")) radio.checked = radio.value === asked.form;
  at("prompt").replaceChildren(...promptNodes(changed));
  at("answer-name").textContent = source ? "What it writes" : "Answer";
  at("answer-text").value = asked.answer;
  at("answer-rival").value = asked.rival ?? "";
  at("rivalry").hidden = asked.rival === null;
  at("versus").setAttribute("aria-pressed", String(asked.rival !== null));
  at("versus").textContent =
    asked.rival === null ? "Compare with another answer" : "Stop comparing";
  at("new").max = model().written;
  at("new").value = asked.new;
  showChoices();
  showPromptExamples(changed);
  for (const field of at("writing").querySelectorAll("textarea")) grow(field);
}

function showChoices() {
  const option = (value, text) => element("option", { value, text });
  at("by").replaceChildren(...units().map((unit) => option(unit, UNITS[unit])));
  at("by").value = asked.by;
  const named = (each) => (each === model().recommended ? `${each} (recommended)` : each);
  at("answer-method").replaceChildren(...offered().map((each) => option(each, named(each))));
  const { name, what } = method(methodOf());
  at("answer-method").value = name;
  at("answer-method-what").textContent = what.replaceAll("the class", "the answer");
}

function promptNodes(changed) {
  if (asked.form === "chat") return chatNodes(changed);
  if (asked.form === "documents") return documentNodes(changed);
  const name = model().kind === "seq2seq" ? "Source" : "Prompt";
  return [field("prompt-text", name, asked.text, (text) => ((asked.text = text), changed()))];
}

function field(id, name, value, write, more = []) {
  const area = element("textarea", { id, rows: 1, dir: "auto", spellcheck: "false" });
  area.value = value;
  area.addEventListener("input", () => {
    grow(area);
    write(area.value);
  });
  const label = element("label", { for: id, text: name });
  const head = more.length ? element("div", { class: "line" }, label, ...more) : label;
  return element("div", { class: "field" }, head, area);
}

const button = (text, onclick, more = {}) =>
  element("button", { type: "button", class: "plain", text, onclick, ...more });

// Change a list of fields and show it again, with the focus on one of them.
function remade(changed, change, focus) {
  change();
  changed();
  showPrompt(changed);
  at(focus)?.focus();
}

function chatNodes(changed) {
  const { messages } = asked;
  const nodes = messages.map((message, i) => {
    const number = i + 1;
    const role = element("select", { "aria-label": `Role of message ${number}` });
    const roles = [...new Set([...ROLES, message.role])];
    role.append(...roles.map((name) => element("option", { value: name, text: name })));
    role.value = message.role;
    role.addEventListener("change", () => ((message.role = role.value), changed()));
    const drop = () => remade(changed, () => messages.splice(i, 1), "prompt-0");
    const label = { "aria-label": `Remove message ${number}` };
    const remove = messages.length > 1 ? [button("Remove", drop, label)] : [];
    const write = (text) => ((message.content = text), changed());
    return field(`prompt-${i}`, `Message ${number}`, message.content, write, [role, ...remove]);
  });
  const next = messages.at(-1)?.role === "user" ? "assistant" : "user";
  const grown = () => messages.push({ role: next, content: "" });
  const add = () => remade(changed, grown, `prompt-${messages.length}`);
  return [...nodes, button("Add a message", add, { id: "add-message" })];
}

function documentNodes(changed) {
  const { documents } = asked;
  const nodes = documents.map((text, i) => {
    const number = i + 1;
    const drop = () => remade(changed, () => documents.splice(i, 1), "prompt-0");
    const label = { "aria-label": `Remove document ${number}` };
    const remove = documents.length > 1 ? [button("Remove", drop, label)] : [];
    const write = (value) => ((documents[i] = value), changed());
    return field(`prompt-${i}`, `Document ${number}`, text, write, remove);
  });
  const add = () => remade(changed, () => documents.push(""), `prompt-${documents.length}`);
  const write = (text) => ((asked.question = text), changed());
  const question = field("prompt-question", "Question", asked.question, write);
  return [...nodes, button("Add a document", add, { id: "add-document" }), question];
}

function showPromptExamples(changed) {
  const { text, messages, documents, question } = structuredClone(START);
  const known = [{ name: text, form: "text", text }];
  if (model().chats) known.push({ name: messages[0].content, form: "chat", messages });
  known.push({ name: "A question about two documents", form: "documents", documents, question });
  const shown = model().kind === "seq2seq" ? [{ name: SOURCE, form: "text", text: SOURCE }] : known;
  const buttons = shown.map(({ name, ...example }, i) => {
    const choose = () => {
      Object.assign(asked, structuredClone(example));
      fitAsked();
      changed();
      showPrompt(changed);
      at("prompts").children[i].focus();
    };
    return element("button", { type: "button", text: name, onclick: choose });
  });
  at("prompts").replaceChildren(...buttons);
}
