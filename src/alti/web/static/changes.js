// Two texts compared: which words are not in both, and one scale for a method.

import { scaleOf } from "/paint.js";

const textOf = (piece) => piece.text.toLowerCase();
const wordsOf = (view, unit) =>
  view[unit].flat().filter((piece) => piece.places.length && !piece.special);

// The pieces of each text that are not in the longest common sequence of both.
export function changes(first, second, unit) {
  const [a, b] = [wordsOf(first, unit), wordsOf(second, unit)];
  const common = lengths(a, b);
  const changed = new Set([...a, ...b]);
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (textOf(a[i]) === textOf(b[j])) {
      changed.delete(a[i++]);
      changed.delete(b[j++]);
    } else if (common[i + 1][j] >= common[i][j + 1]) i++;
    else j++;
  }
  return changed;
}

// common[i][j]: how many pieces a from i on and b from j on have in common, in order.
function lengths(a, b) {
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const same = textOf(a[i]) === textOf(b[j]);
      common[i][j] = same ? 1 + common[i + 1][j + 1] : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  return common;
}

// The scale of a method over all texts that are shown.
export function commonScale(views, unit, method) {
  const scales = views.flatMap((view) =>
    view.rows
      .filter((row) => row.method === method)
      .map((row) => scaleOf(view[unit], row.scores, view.special)),
  );
  return widest(scales);
}

export const widest = (scales) => ({
  largest: Math.max(0, ...scales.map(({ largest }) => largest)),
  signed: scales.some(({ signed }) => signed),
});
