// What the page shows, and the part of it that a link keeps: everything behind # in the address.

export const MOST = 4; // methods at once
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
};
const START = {
  model: null,
  text: EXAMPLES.sequence()[1],
  pair: null, // what the model reads behind the text
  other: null, // the text to compare with
  methods: ["alti", "absence"],
  target: null, // null: the predicted class
  against: null, // null: all others
  position: null,
  unit: "words",
  panel: 0, // which of two texts was clicked
  place: null, // which of its tokens; null: the one that the prediction is read from
  layer: null, // null: the last
  since: "input",
  threshold: null, // in per cent; null: what suits the length
};
const COUNTS = ["target", "against", "position", "panel", "place", "layer", "threshold"];

export const state = { ...START };
export const link = { held: false, note: "" }; // held: what takes many passes waits for the user
export const told = { models: [], methods: [] }; // what GET /api/models said

const nameOf = (spec) => spec.split(":")[0]; // alti:p=2 is alti
export const model = () => told.models.find((one) => one.name === state.model);
export const method = (spec) => told.methods.find((one) => one.name === nameOf(spec));
export const texts = () => (state.other === null ? [state.text] : [state.text, state.other]);
export const examples = () => (EXAMPLES[model().kind] ?? EXAMPLES.sequence)(model().mask);
export const readsPairs = () => ["sequence", "encoder"].includes(model().kind);
export const readsClass = () => state.methods.some((spec) => method(spec).classes);

// Anybody can make a link: what runs the model many times is computed when the user asks for it.
export const held = () => state.methods.filter((spec) => link.held && method(spec).many_passes);
export const allow = () => Object.assign(link, { held: false, note: "" });

export function questionOf(text) {
  const { model, position } = state;
  const rest = state.methods.filter((spec) => !held().includes(spec));
  const methods = rest.length ? rest : ["alti"]; // the prediction and the layers are shown anyway
  const text_pair = state.pair?.trim() ? state.pair : null;
  const [target, against] = readsClass() ? [state.target, state.against] : [null, null];
  return { model, text, text_pair, methods, target, against, position };
}

export function address() {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    const usual = value === null || String(value) === String(START[name]);
    if (!usual || name === "text") kept.set(name, value);
  }
  return `#${kept}`;
}

let later = null;

export function remember() {
  clearTimeout(later);
  try {
    history.replaceState(null, "", address());
  } catch {
    // browsers refuse when asked too often; the next change is kept
  }
}

// While a slider is dragged, the address follows when it rests.
export function rememberSoon() {
  clearTimeout(later);
  later = setTimeout(remember, 200);
}

// Whatever stands in the address, the state that comes out can be shown.
export function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, START);
  for (const [name, value] of kept) {
    if (name === "methods") state.methods = value.split(",");
    else if (COUNTS.includes(name)) state[name] = /^\d{1,9}$/.test(value) ? Number(value) : START[name];
    else if (Object.hasOwn(START, name)) state[name] = value;
  }
  if (!model()) state.model = told.models[0].name;
  if (!["words", "tokens"].includes(state.unit)) state.unit = START.unit;
  if (!["input", "layer"].includes(state.since)) state.since = START.since;
  if (state.threshold !== null) state.threshold = Math.min(50, Math.max(1, state.threshold));
  if (state.panel > 1 || state.other === null) state.panel = 0;
  fit(kept.has("text"));
  Object.assign(link, { held: true, note: "" });
  state.methods = [...new Set(state.methods.map(limited))];
}

// A method as a link writes it, its numbers no larger than the page takes from a link.
function limited(spec) {
  const { name, options, largest } = method(spec);
  const kept = spec.split(":").slice(1).map((option) => {
    const [key, value] = option.split("=");
    if (!Object.hasOwn(options, key) || !(Math.abs(Number(value)) > largest)) return option;
    const taken = Math.sign(value) * largest;
    link.note =
      `Methods: the link asks for ${name} with ${option.slice(0, 40)}, ` +
      `but a link may give at most ${largest}: the page takes ${taken}.`;
    return `${key}=${taken}`;
  });
  return [name, ...kept].join(":");
}

// Another model has other methods, and may read another kind of text.
export function fit(keepsText) {
  const offered = state.methods.filter((spec) => model().methods.includes(nameOf(spec)));
  state.methods = offered.length ? [...new Set(offered)].slice(0, MOST) : ["alti"];
  if (state.target !== null && state.target >= model().outputs) state.target = null;
  if (state.target === null || state.against >= model().outputs) state.against = null; // a rival needs a class
  if (state.against === state.target) state.against = null;
  const known = Object.values(EXAMPLES).flatMap((made) => made(model().mask));
  if (!keepsText && known.includes(state.text) && !examples().includes(state.text)) state.text = examples()[0];
  if (model().kind === "token") state.position ??= 1;
  if (!readsPairs()) state.pair = null;
}

export function toggle(name, on) {
  if (on && method(name).many_passes) allow();
  const order = told.methods.map((one) => one.name);
  const rest = state.methods.filter((spec) => nameOf(spec) !== name);
  state.methods = on ? [...rest, name] : rest;
  state.methods.sort((a, b) => order.indexOf(nameOf(a)) - order.indexOf(nameOf(b)));
}
