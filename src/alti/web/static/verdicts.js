// Whether what a model predicts is the label of a row.

import { model } from "/state.js";

export const nameOf = (prediction) =>
  prediction?.label ??
  model().labels[prediction?.index] ??
  (prediction ? `class ${prediction.index}` : "");
const lower = (text) => String(text).trim().toLowerCase();

// Whether a prediction is the label, by name or by number; null where one of them is missing, or
// where the model has no such class.
export function isRight({ label, prediction, right }) {
  if (!prediction || label === null) return right ?? null;
  if (typeof right === "boolean") return right;
  const names = [lower(nameOf(prediction)), String(prediction.index)];
  if (names.includes(lower(label))) return true;
  return prediction.by && !isClass(label) ? null : false;
}

function isClass(label) {
  const { labels } = model();
  const names = labels.flatMap((name, index) => [lower(name), String(index)]);
  return !labels.length || names.includes(lower(label));
}

// Labels that the model does not have, in a sentence; empty if there are none.
export function strangers(predicted) {
  const { name, labels } = model();
  const strange = predicted.filter((row) => row.label !== null && isRight(row) === null);
  if (!strange.length) return "";
  const others = [...new Set(strange.map(({ label }) => label))].slice(0, 3).join(", ");
  const classes = labels.slice(0, 5).join(", ");
  return (
    ` ${name} has the classes ${classes}: rows with other labels, such as ${others}, are neither ` +
    "right nor wrong."
  );
}
