// A set of texts: a table with labels and predictions, errors first, and one row explained.

import { csv, droppedFiles, openedAll } from "/files.js";
import { download } from "/keep.js";
import { element } from "/paint.js";
import { ask } from "/server.js";
import { allow, state } from "/state.js";
import { isRight, nameOf, strangers } from "/verdicts.js";
import { addViews } from "/views.js";

const SHOWN = 25; // rows of the table at a time
const LOWEST = 0.7; // of the window: where the explanation of a row begins at the latest
const CUT = 110; // characters of a text in the table
const OWN = [400, 413, 422]; // statuses of what is wrong with a row, such as its length
const at = (id) => document.getElementById(id);
const set = {
  name: "",
  guessed: null, // the column that was taken as the text
  rows: [],
  row: null,
  page: 0,
  find: "",
  which: "all",
  order: "errors",
};
let running = null; // aborts the predictions that are made row by row
let explain = () => {};

export function wireSets({ redraw, toast }) {
  explain = redraw;
  const take = (files) => open(files, toast);
  at("set-file").addEventListener("change", () => {
    take([...at("set-file").files]);
    at("set-file").value = ""; // the same file may be opened again
  });
  wireDrop(take);
  at("set-find").addEventListener("input", () => change({ find: at("set-find").value }));
  at("set-which").addEventListener("change", () => change({ which: at("set-which").value }));
  at("set-order").addEventListener("change", () => change({ order: at("set-order").value }));
  at("set-previous").addEventListener("click", () => step(-1));
  at("set-next").addEventListener("click", () => step(1));
  at("set-predict").addEventListener("click", () => (running ? running.abort() : predictAll()));
  at("set-save").addEventListener("click", () => save(toast));
  at("set-pages").addEventListener("click", ({ target }) => {
    if (target.dataset.page) turn(Number(target.dataset.page));
  });
  document.addEventListener("explained", ({ detail }) => learn(detail));
  document.addEventListener("model-chosen", forget);
}

// A file may be dropped anywhere: elsewhere the browser would leave the page to show it.
function wireDrop(take) {
  const over = (on) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return false; // a text, into a field
    event.preventDefault();
    at("sets").classList.toggle("over", on);
    return true;
  };
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", over(false));
  document.addEventListener("drop", (event) => {
    if (over(false)(event)) take(droppedFiles(event.dataTransfer));
  });
}

const say = (message) => {
  at("set-error").textContent = message;
  at("set-error").hidden = !message;
};

// Open files, or what will be files: a dropped folder is read first.
async function open(given, toast) {
  say("");
  try {
    const files = await given;
    if (!files.length) return;
    const found = await openedAll(files);
    at("sets").open = true;
    if (found.kind === "views") {
      toast(addViews(found.views));
      return;
    }
    running?.abort();
    Object.assign(set, {
      rows: joined(found.rows),
      name: nameOfFiles(files),
      guessed: found.guessed ?? null,
      row: null,
      page: 0,
      find: "",
      which: "all",
    });
    at("set-find").value = "";
    at("set-which").value = "all";
    show();
  } catch (error) {
    say(error.message);
  }
}

const nameOfFiles = ([first, ...others]) =>
  others.length ? `${first.name} and ${others.length} more` : first.name;

// A benchmark holds no texts and a data file no predictions: opened one after the other they meet.
function joined(rows) {
  const before = new Map(set.rows.map((row) => [row.text, row]));
  const lacks = (name) => rows.every((row) => row[name] === null);
  const same = rows.every(({ text }) => text !== null && before.has(text));
  if (same && lacks("label") !== lacks("prediction")) {
    const name = lacks("label") ? "label" : "prediction";
    return rows.map((row) => ({ ...row, [name]: before.get(row.text)[name] }));
  }
  const bare = (some) => some.length > 0 && some.every(({ text }) => text === null);
  if (bare(rows) === bare(set.rows) || !set.rows.length) return rows;
  const [texts, numbers] = bare(rows) ? [set.rows, rows] : [rows, set.rows];
  const known = new Map(numbers.map((row) => [row.number, row]));
  const fits = ({ number, label }) =>
    number < texts.length && [null, label].includes(texts[number].label);
  if (!numbers.every(fits)) return rows; // of other data
  return texts.map((row) => {
    const {
      prediction = row.prediction,
      right = null,
      label = row.label,
    } = known.get(row.number) ?? {};
    return { ...row, prediction, right, label: row.label ?? label };
  });
}

// ---- what the table shows

const rank = (row) => ({ false: 0, null: 1, true: 2 })[String(isRight(row))];
const sure = ({ prediction }) => prediction?.probability ?? 0;

function listed() {
  const find = set.find.trim().toLowerCase();
  const wanted = {
    all: () => true,
    wrong: (row) => isRight(row) === false,
    right: (row) => isRight(row) === true,
    open: (row) => !row.prediction,
  };
  const rows = set.rows.filter(
    (row) =>
      wanted[set.which](row) &&
      (!find ||
        [row.text ?? "", row.pair ?? "", row.label ?? "", nameOf(row.prediction)].some((text) =>
          text.toLowerCase().includes(find),
        )),
  );
  if (set.order === "file") return rows;
  // the surest errors first, then what is not known, then the least sure of what is right
  const ranks = new Map(rows.map((row) => [row, rank(row)]));
  const inOrder = [
    (a, b) => sure(b) - sure(a),
    (a, b) => a.number - b.number,
    (a, b) => sure(a) - sure(b),
  ];
  return rows.toSorted((a, b) => ranks.get(a) - ranks.get(b) || inOrder[ranks.get(a)](a, b));
}

function change(changes) {
  Object.assign(set, changes, { page: 0 });
  show();
}

function turn(page) {
  set.page = page;
  show();
  at("set-rows").querySelector("button")?.focus();
}

export function show() {
  at("set-body").hidden = !set.rows.length;
  const rows = listed();
  const pages = Math.max(1, Math.ceil(rows.length / SHOWN));
  set.page = Math.min(set.page, pages - 1);
  const shown = rows.slice(SHOWN * set.page, SHOWN * (set.page + 1));
  const focused = document.activeElement?.closest("#set-rows tr")?.dataset.row;
  at("set-rows").replaceChildren(...shown.map(line));
  if (focused)
    at("set-rows").querySelector(`[data-row="${focused}"] button`)?.focus({ preventScroll: true });
  const predicted = set.rows.filter(({ prediction }) => prediction);
  const known = predicted.length;
  const wrong = set.rows.filter((row) => isRight(row) === false).length;
  const parts = [
    `${set.name}: ${rows.length} of ${set.rows.length} rows`,
    `${known} predicted${makers(predicted)}`,
  ];
  if (set.rows.some(({ label }) => label !== null)) parts.push(`${wrong} wrong`);
  const taken = ` The column ${set.guessed} was taken as the text: none is named text.`;
  const notes = [set.guessed === null ? "" : taken, strangers(predicted)].join("");
  at("set-by").textContent = `${parts.join(", ")}.${notes}`;
  const textless = set.rows.some(({ text }) => text === null);
  at("set-hint").hidden = !textless;
  at("set-predict").disabled = textless || known === set.rows.length;
  showPages(pages);
  at("set-previous").disabled = at("set-next").disabled = textless || rows.length === 0;
}

// Who predicted: models of this server, or the file itself.
function makers(predicted) {
  const names = [...new Set(predicted.map(({ prediction }) => prediction.by ?? "the file"))];
  return names.length ? ` by ${names.join(" and ")}` : "";
}

function showPages(pages) {
  const numbers = [...new Set([0, set.page - 1, set.page, set.page + 1, pages - 1])].filter(
    (page) => page >= 0 && page < pages,
  );
  const button = (page) =>
    element("button", {
      type: "button",
      "data-page": page,
      text: page + 1,
      "aria-label": `Page ${page + 1} of ${pages}`,
      "aria-current": page === set.page ? "page" : null,
    });
  at("set-pages").replaceChildren(...(pages > 1 ? numbers.map(button) : []));
}

function line(row) {
  const on = row === set.row;
  const text =
    row.text === null
      ? `row ${row.number + 1}`
      : row.text.length > CUT
        ? `${row.text.slice(0, CUT - 1)}…`
        : row.text || "(empty)";
  const about = {
    type: "button",
    text,
    dir: "auto",
    disabled: !row.text?.trim(),
    onclick: () => choose(row),
  };
  const right = isRight(row);
  const verdict = right === null ? "" : right ? "right" : "wrong";
  const cell = (content, name, title = null) =>
    element("td", { "data-name": name, text: content, title, dir: "auto" });
  return element(
    "tr",
    {
      "data-row": row.number,
      class: [on ? "on" : "", verdict].filter(Boolean).join(" ") || null,
      "aria-current": on ? "true" : null,
    },
    element("th", { scope: "row" }, element("button", about)),
    cell(row.label ?? "", "label"),
    cell(nameOf(row.prediction), "prediction"),
    cell(
      row.prediction?.probability == null
        ? ""
        : `${(100 * row.prediction.probability).toFixed(1)} %`,
      "confidence",
    ),
    row.failed ? cell("not predicted", "verdict", row.failed) : cell(verdict, "verdict"),
  );
}

// ---- one row

function choose(row) {
  set.row = row;
  Object.assign(state, {
    ask: "next",
    text: row.text,
    pair: row.pair,
    other: null,
    place: null,
    position: null,
    target: null,
    against: null,
  });
  allow();
  const rows = listed();
  set.page = Math.max(0, Math.floor(rows.indexOf(row) / SHOWN));
  show();
  rowInSight();
  const below = at("results").getBoundingClientRect().top - LOWEST * innerHeight;
  if (below > 0) scrollBy({ top: below, behavior: "instant" });
  explain();
}

// The chosen row scrolls into its box, below the names of the columns.
function rowInSight() {
  const line = document.querySelector("#set-rows tr.on");
  if (!line) return;
  const box = at("set-box");
  const [inside, outside] = [line.getBoundingClientRect(), box.getBoundingClientRect()];
  const head = line.closest("table").tHead.getBoundingClientRect().height;
  const above = inside.top - outside.top - head;
  if (above < 0) box.scrollTop += above;
  else box.scrollTop += Math.max(0, inside.bottom - outside.bottom);
}

function step(by) {
  const rows = listed().filter(({ text }) => text?.trim());
  if (!rows.length) return;
  const here = rows.indexOf(set.row);
  choose(rows[here < 0 ? 0 : (here + by + rows.length) % rows.length]);
}

// The explanation of a row says what is predicted for it: no further request is needed.
function learn(views) {
  const view = views[0];
  if (!set.row || !view || state.text !== set.row.text || view.model !== state.model) return;
  const best = view.classes[0] ?? {
    label: view.label,
    index: view.target,
    probability: view.probability,
  };
  if (best.label === null) return;
  Object.assign(set.row, {
    prediction: {
      label: best.label,
      index: best.index,
      probability: best.probability,
      by: view.model,
    },
    right: null,
    failed: null,
  });
  show();
  rowInSight(); // it is taller now
}

// Predictions of another model are not this one's.
function forget() {
  running?.abort();
  for (const row of set.rows) Object.assign(row, { prediction: null, right: null, failed: null });
  if (set.rows.length) show();
}

// ---- all rows, one request after the other

async function predictAll() {
  running = new AbortController();
  const { signal } = running;
  at("set-predict").textContent = "Stop";
  at("set-bar").hidden = false;
  say("");
  const open = listed().filter((row) => !row.prediction && row.text?.trim());
  try {
    for (const [done, row] of open.entries()) {
      await predict(row, signal);
      at("set-bar").value = (done + 1) / open.length;
      if (done % 10 === 9) show();
    }
    sayFailed(open);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message);
  }
  running = null;
  at("set-bar").hidden = true;
  at("set-predict").textContent = "Predict all rows";
  show();
}

// A text that cannot be predicted, one too long for instance, does not hold up the others.
async function predict(row, signal) {
  const by = state.model;
  const question = { model: by, text: row.text, text_pair: row.pair };
  try {
    const response = await ask("/api/predict", question, signal);
    const { label, index, probability } = await response.json();
    const prediction = { label, index, probability, by };
    Object.assign(row, { prediction, right: null, failed: null });
  } catch (error) {
    if (!OWN.includes(error.status)) throw error;
    row.failed = error.message;
  }
}

function sayFailed(rows) {
  const failed = rows.filter((row) => row.failed);
  if (!failed.length) return;
  const [{ number, failed: why }] = failed;
  say(`Not predicted: ${failed.length} of ${rows.length} rows. Row ${number + 1}: ${why}`);
}

function save(toast) {
  const head = ["number", "text", "text_pair", "label", "prediction", "confidence", "right"];
  const rows = listed().map((row) => [
    row.number + 1,
    row.text,
    row.pair,
    row.label,
    nameOf(row.prediction),
    row.prediction?.probability,
    isRight(row),
  ]);
  const type = "text/csv";
  download({ file: "alti-set.csv" }, new Blob([csv([head, ...rows])], { type }));
  toast("alti-set.csv saved.");
}
