// The state of the page, which links store in the address after the #.

export const MOST = 4; // methods at a time
const EXAMPLES = {
  sequence: () => [
    "A gorgeous, witty, seductive movie.",
    "The acting is superb, but the plot is a tedious mess.",
    "It is not a bad film at all.",
    "I wanted to love it, and I almost did until the dreadful ending.",
  ],
  masked: (mask) => [`The film was ${mask}.`],
  causal: () => ["The keys to the cabinet"],
  token: () => ["Marie Curie worked in Paris."],
  span: () => ["When was the tower finished?"],
};
const PASSAGE = "The tower was finished in 1889."; // that a question is answered from
const START = {
  model: null,
  text: EXAMPLES.sequence()[1],
  pair: null, // the second text of a pair
  other: null, // the text to compare with
  versus: null, // the model to compare with, on the same text
  methods: ["alti", "absence"],
  target: null, // null: the predicted class
  against: null, // null: all other classes
  said: null, // the token that is explained, of a language model; null: the predicted one
  rather: null, // against this one
  position: null,
  ask: "next", // or "answer"
  prompt: null, // what is asked about an answer, as JSON
  unit: "words",
  panel: 0, // the text that was clicked
  place: null, // the token in it; null: the one that the prediction is read from
  layer: null, // null: the last
  since: "input",
  open: null, // what is open below the layer: heads, lens
  head: null, // null: the strongest
  brings: "contributions", // or "attention": what is shown of heads
  threshold: null, // in per cent; null: chosen by length
};
const NUMBERS = ["target", "against", "position", "panel", "place", "layer", "threshold", "head"];

export const state = { ...START };
// held: methods with many passes wait for a click; missing: the model of a link that is not here
export const link = { held: false, note: "", missing: null };
export const catalogue = { models: [], methods: [] }; // from GET /api/models

const nameOf = (spec) => spec.split(":")[0]; // alti:p=2 is alti
export const modelNamed = (wanted) => catalogue.models.find(({ name }) => name === wanted);
export const model = () => modelNamed(state.model);
export const method = (spec) => catalogue.methods.find(({ name }) => name === nameOf(spec));
export const texts = () => (state.other === null ? [state.text] : [state.text, state.other]);
// What is shown side by side: two texts of one model, or one text of two models.
export const sides = () =>
  state.versus === null
    ? texts().map((text) => ({ text, model: state.model }))
    : [state.model, state.versus].map((model) => ({ text: state.text, model }));
export const sideName = (panel) =>
  state.versus === null ? `the ${["first", "second"][panel]} text` : sides()[panel].model;
export const examples = () => (EXAMPLES[model().kind] ?? EXAMPLES.sequence)(model().mask);
export const readsPairs = () => ["sequence", "encoder", "span"].includes(model().kind);
export const saysWords = () => ["causal", "masked"].includes(model().kind);
export const readsClass = () => state.methods.some((spec) => method(spec).classes);

// Anyone can make a link, so methods that run the model many times wait for the user's consent.
export const held = () => state.methods.filter((spec) => link.held && method(spec).many_passes);
export const allow = () => Object.assign(link, { held: false, note: "" });

export function questionOf(text) {
  const { model, position } = state;
  const allowed = state.methods.filter((spec) => !held().includes(spec));
  const methods = allowed.length ? allowed : ["alti"]; // for the prediction and the layers
  const text_pair = state.pair?.trim() ? state.pair : null;
  const target = readsClass() ? (state.said ?? state.target) : null;
  const against = readsClass() ? (state.rather ?? state.against) : null;
  return { model, text, text_pair, methods, target, against, position };
}

export function address() {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const isDefault = value === null || String(value) === String(START[name]);
    if (!isDefault || name === "text") parameters.set(name, value);
  }
  if (link.missing !== null) parameters.set("model", link.missing);
  return `#${parameters}`;
}

let timer = null;

export function remember() {
  clearTimeout(timer);
  try {
    history.replaceState(null, "", address());
  } catch {
    // browsers limit how often this may be called; the next change is stored
  }
}

// While a slider is dragged, the address is updated when it pauses.
export function rememberSoon() {
  clearTimeout(timer);
  timer = setTimeout(remember, 200);
}

const numberOr = (value, fallback) => (/^\d{1,9}(\.\d)?$/.test(value) ? Number(value) : fallback);

// Whatever the address contains, the resulting state can be shown.
export function recall() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, START);
  for (const [name, value] of parameters) {
    if (name === "methods") state.methods = value.split(",");
    else if (NUMBERS.includes(name)) state[name] = numberOr(value, START[name]);
    else if (Object.hasOwn(START, name)) state[name] = value;
  }
  link.missing = state.model !== null && !model() ? state.model : null;
  if (!model()) state.model = catalogue.models[0].name;
  if (!["words", "tokens"].includes(state.unit)) state.unit = START.unit;
  if (!["next", "answer"].includes(state.ask)) state.ask = START.ask;
  if (!["input", "layer"].includes(state.since)) state.since = START.since;
  if (!["contributions", "attention"].includes(state.brings)) state.brings = START.brings;
  if (state.threshold !== null) state.threshold = Math.min(50, Math.max(0.1, state.threshold));
  const wanted = { ...state, methods: parameters.has("methods") ? state.methods : [] };
  if (!modelNamed(state.versus) || state.other !== null) state.versus = null;
  if (state.panel > 1 || sides().length < 2) state.panel = 0;
  fit(parameters.has("text"));
  Object.assign(link, { held: true, note: notShown(wanted) });
  state.methods = [...new Set(state.methods.map(limited))];
}

// What a link asks for and the model or the server has not; the page shows something else instead.
function notShown({ target, methods, versus, other }) {
  const unknown = methods.filter((spec) => !state.methods.includes(spec));
  const names = unknown.map((spec) => spec.slice(0, 40));
  const lost = versus !== null && other === null && state.versus === null;
  const parts = [
    target !== null && state.target === null ? `the class ${target}` : "",
    names.length ? `the method ${names.join(", ")}` : "",
    lost ? `the model ${versus.slice(0, 40)} beside it` : "",
  ].filter(Boolean);
  if (link.missing !== null || !parts.length) return "";
  const instead = `the page shows what there is of ${state.model}.`;
  return `The link asks for ${parts.join(", ")}, which is not here: ${instead}`;
}

// A method from a link, with its numbers capped at what a link may set.
function limited(spec) {
  const { name, options, largest } = method(spec);
  const given = spec.split(":").slice(1);
  const capped = given.map((option) => {
    const [key, value] = option.split("=");
    if (!Object.hasOwn(options, key) || !(Math.abs(Number(value)) > largest)) return option;
    const cap = Math.sign(value) * largest;
    link.note +=
      `${link.note ? " " : ""}Methods: the link asks for ${name} with ${option.slice(0, 40)}, ` +
      `but a link may give at most ${largest}: the page takes ${cap}.`;
    return `${key}=${cap}`;
  });
  return [name, ...capped].join(":");
}

// Adapt the state to the model: its methods, its classes and the kind of text that it reads.
export function fit(keepsText) {
  const offered = state.methods.filter((spec) => model().methods.includes(nameOf(spec)));
  state.methods = offered.length ? [...new Set(offered)].slice(0, MOST) : ["alti"];
  if (state.target !== null && state.target >= model().outputs) state.target = null;
  if (state.target === null) state.against = null; // a rival needs a class
  if (state.against >= model().outputs) state.against = null;
  if (state.against === state.target) state.against = null;
  const known = Object.values(EXAMPLES).flatMap((examplesFor) => examplesFor(model().mask));
  const isExample = known.includes(state.text);
  if (!keepsText && isExample && !examples().includes(state.text)) state.text = examples()[0];
  if (!saysWords()) Object.assign(state, { said: null, rather: null });
  if (!model().writes) state.ask = "next";
  if (model().kind === "seq2seq") state.ask = "answer";
  if (model().kind === "token") state.position ??= 1;
  if (!readsPairs()) state.pair = null;
  if (model().kind === "span") state.pair ??= PASSAGE;
  if (!rivalModels().includes(state.versus)) state.versus = null;
}

// The models that can be set beside the one that is shown: of the same kind of head.
export function rivalModels() {
  const { name: own, kind } = model();
  return catalogue.models
    .filter(({ name, kind: other }) => name !== own && other === kind)
    .map(({ name }) => name);
}

export function toggle(name, on) {
  if (on && method(name).many_passes) allow();
  const order = catalogue.methods.map((each) => each.name);
  const others = state.methods.filter((spec) => nameOf(spec) !== name);
  state.methods = on ? [...others, name] : others;
  state.methods.sort((a, b) => order.indexOf(nameOf(a)) - order.indexOf(nameOf(b)));
}
