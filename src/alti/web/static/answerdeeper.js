// The heads and the lens below an answer: of the token from which its chosen part is said.

import { modelNamed, rememberSoon, state } from "/state.js";

const at = (id) => document.getElementById(id);
let shown = null; // what is asked about: { asked, name, place }

export function hideDeeper() {
  at("deeper").hidden = true;
}

// `asked` is a prompt with its answer, the model and the number of a token, which has a `name`.
export function showDeeper(asked, name) {
  at("deeper").hidden = modelNamed(asked.model).kind !== "causal"; // others have two stacks
  if (at("deeper").hidden) return;
  shown = { asked, name, place: null };
  draw();
}

function draw() {
  const { asked, name, place } = shown;
  const { layers } = modelNamed(asked.model);
  const layer = Math.min(state.layer ?? Infinity, layers - 1);
  at("deeper-of").hidden = false;
  at("deeper-of").querySelector("p").textContent =
    `Inside the model where it says “${name}”: at the token before it. ` +
    "Click a token of the answer for another.";
  at("deeper-layer").max = layers;
  at("deeper-layer").value = layer + 1;
  at("deeper-number").textContent = `${layer + 1} of ${layers}`;
  const view = { asked, model: asked.model, answer: true, pick: choose };
  const detail = { view, layer, places: place === null ? [] : [place] };
  document.dispatchEvent(new CustomEvent("layer-shown", { detail }));
}

// A token of prompt or answer whose row is wanted instead.
function choose(place) {
  shown.place = place;
  draw();
}

export function wireDeeper() {
  at("deeper-layer").addEventListener("input", () => {
    state.layer = Number(at("deeper-layer").value) - 1;
    rememberSoon();
    draw();
  });
}
