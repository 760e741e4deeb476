// What a language model would have said after each layer: its own head on what it held then.

import { quoted } from "/cards.js";
import { drawer } from "/drawers.js";
import { element } from "/paint.js";
import { ask } from "/server.js";
import { modelNamed, state } from "/state.js";

const at = (id) => document.getElementById(id);
const speaks = ({ view }) => ["causal", "masked"].includes(modelNamed(view.model)?.kind);
const visible = (token) =>
  (token.trim(" ") ? token : token.replaceAll(" ", "␣")).replaceAll("\n", "↵");

export function wireLens() {
  drawer("lens", {
    fits: speaks,
    key: ({ view }) => JSON.stringify([view.asked, view.target]),
    load: async ({ view }, signal, ticket) => {
      if (view.answer)
        return (await ask("/api/answer_lens", { ...view.asked, ticket }, signal)).json();
      const { model, text, text_pair } = view.asked;
      const { position, target } = view;
      const question = { model, text, text_pair, position, target, ticket };
      const response = await ask("/api/lens", question, signal);
      return response.json();
    },
    draw: ({ view, layer }, lens) => draw(lens, layer, view.model),
  });
}

// The first layer from which on the explained token stays the likeliest.
function settled({ ranks }) {
  let layer = ranks.length;
  while (layer && ranks[layer - 1] === 1) layer--;
  return layer;
}

function draw(lens, layer, name) {
  const label = quoted(visible(lens.label));
  const since = settled(lens);
  const count = lens.own.length;
  at("lens-by").textContent =
    since === count
      ? `${name}: ${label} is not the likeliest after the last layer.`
      : `${name}: ${label} is the likeliest from layer ${since + 1} of ${count} on.`;
  const most = Math.max(...lens.tokens.map((row) => row.length));
  const head = element(
    "tr",
    {},
    element("th", { scope: "col", text: "layer" }),
    element("th", { scope: "col", text: `p of ${label}` }),
    element("th", { scope: "col", colspan: most, text: "likeliest tokens" }),
  );
  const focused = document.activeElement?.closest("#lens-table tr")?.dataset.layer;
  const rows = lens.own.map((_, i) => line(lens, i, i === layer));
  at("lens-table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  at("lens-table")
    .querySelector(`[data-layer="${focused}"] button`)
    ?.focus({ preventScroll: true });
}

function line(lens, layer, on) {
  const choose = () => {
    const slider = at(state.ask === "answer" ? "deeper-layer" : "layer");
    slider.value = layer + 1;
    slider.dispatchEvent(new Event("input"));
  };
  const about = {
    type: "button",
    text: layer + 1,
    "aria-label": `layer ${layer + 1}`,
    onclick: choose,
  };
  const own = element("td", { class: "number", text: chance(lens.own[layer]) });
  const tokens = lens.tokens[layer].map((token, i) =>
    cell(token, lens.probabilities[layer][i], lens.ids[layer][i] === lens.ids.at(-1)[0]),
  );
  const row = { "data-layer": layer, class: on ? "on" : null, "aria-current": on ? "true" : null };
  return element(
    "tr",
    row,
    element("th", { scope: "row" }, element("button", about)),
    own,
    ...tokens,
  );
}

function cell(token, probability, final) {
  const name = element(final ? "b" : "span", { dir: "auto", text: visible(token) });
  const level = Math.round(20 * probability);
  const box = element("td", { class: level ? `alti-f${level}` : null }, name, " ");
  box.append(element("small", { text: chance(probability) }));
  return box;
}

const chance = (share) => (share >= 0.0005 ? share.toFixed(3) : share.toExponential(0));
