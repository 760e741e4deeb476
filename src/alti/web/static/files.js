// Files that a user opens, read in the browser: CSV, JSONL, results of alti, sets of views. Parquet
// is read by the server.
// Whatever a file holds, it becomes strings and numbers or one sentence; nothing of it is run.

import { ask, encoded } from "/server.js";

const LARGEST = 5_000_000; // bytes
const ROWS = 20_000;
const FILES = 200; // of a folder
const TEXTS = [
  "text",
  "sentence",
  "review",
  "question",
  "premise",
  "content",
  "prompt",
  "sentence1",
];
const PAIRS = ["text_pair", "pair", "hypothesis", "sentence2", "context"];
const LABELS = ["label", "gold", "class", "target", "sentiment", "category"];
export const VIEWS = "alti-views";

const shownSize = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// One file; or the shards of a folder of results, which together are one table.
export async function openedAll(files) {
  if (files.length > FILES) {
    throw new Error(
      `These are ${files.length} files, and this page opens up to ${FILES} together.`,
    );
  }
  if (files.length === 1) return opened(files[0]);
  const rows = [];
  let guessed = null;
  for (const file of files) {
    const part = await opened(file);
    guessed ??= part.guessed;
    if (part.kind !== "rows") throw new Error("Open a set of views by itself.");
    rows.push(...part.rows);
    if (rows.length > ROWS) {
      throw new Error(`These files have over ${ROWS} rows: open a part of them.`);
    }
  }
  return { kind: "rows", rows: rows.map((row, number) => ({ ...row, number })), guessed };
}

// The files of what was dropped; of a folder, its Parquet files in the order of their names.
export async function droppedFiles({ items, files }) {
  const folder = [...items]
    .map((item) => item.webkitGetAsEntry())
    .find((entry) => entry?.isDirectory);
  if (!folder) return [...files];
  const found = (await entriesOf(folder)).filter(
    ({ isFile, name }) => isFile && name.endsWith(".parquet"),
  );
  if (!found.length)
    throw new Error(
      `${folder.name} holds no Parquet file: drop a folder that alti explain --out wrote.`,
    );
  return Promise.all(found.map((entry) => new Promise((done, fail) => entry.file(done, fail))));
}

async function entriesOf(folder) {
  const reader = folder.createReader();
  const all = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return all.toSorted((a, b) => (a.name < b.name ? -1 : 1));
    all.push(...some); // browsers tell a hundred at a time
  }
}

// { kind: "rows", rows: [{ number, text, pair, label, prediction }], guessed: the column that was
// taken as the text though its name does not say so } or { kind: "views", views }
export async function opened(file) {
  if (file.size > LARGEST) {
    throw new Error(
      `${file.name} has ${shownSize(file.size)}, and this page reads up to ` +
        `${shownSize(LARGEST)}: open a part of it.`,
    );
  }
  const bytes = new Uint8Array(await file.arrayBuffer());
  const stored = savedResult(bytes);
  if (stored) return { kind: "rows", rows: [resultRow(stored, 0)] };
  const content = await contentOf(file, bytes);
  if (content.views) return { kind: "views", views: content.views };
  const { rows, guessed = null } = rowsOf(content.records, file.name);
  if (!rows.length)
    throw new Error(`${file.name} has no rows: give a CSV with a header, or JSONL.`);
  if (rows.length > ROWS)
    throw new Error(
      `${file.name} has ${rows.length} rows, and this page takes up to ${ROWS}: open a part of it.`,
    );
  return { kind: "rows", rows, guessed };
}

async function contentOf(file, bytes) {
  if (String.fromCharCode(...bytes.subarray(0, 4)) === "PAR1")
    return { records: await fromParquet(file) };
  const text = textOf(bytes, file.name);
  return /^\s*[[{]/.test(text) ? fromJson(text, file.name) : { records: fromCsv(text, file.name) };
}

async function fromParquet(file) {
  try {
    const response = await ask("/api/rows", { file: await encoded(file) });
    return (await response.json()).rows;
  } catch (error) {
    throw new Error(`${file.name}: ${error.message}`);
  }
}

function textOf(bytes, name) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch {
    // falls through to the sentence
  }
  throw new Error(`${name} is not text in UTF-8: give a CSV, JSONL or a file that alti wrote.`);
}

// ---- JSON

function fromJson(text, name) {
  const whole = parsed(text);
  if (isObject(whole) && whole.kind === VIEWS) return { views: viewsIn(whole, name) };
  if (Array.isArray(whole)) return { records: whole };
  if (isObject(whole)) return { records: [whole] };
  const lines = text.split("\n").filter((line) => line.trim());
  const records = lines.map((line, i) => {
    const record = parsed(line);
    if (!isObject(record)) throw new Error(`${name}: line ${i + 1} is not a JSON object.`);
    return record;
  });
  return { records };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function viewsIn({ views }, name) {
  const right = (view) =>
    isObject(view) &&
    typeof view.title === "string" &&
    typeof view.address === "string" &&
    view.address.startsWith("#");
  if (!Array.isArray(views) || views.length > 200 || !views.every(right)) {
    throw new Error(
      `${name} says that it is a set of views, but it is damaged: it holds no list of up to 200 ` +
        "titles and addresses.",
    );
  }
  return views.map(({ title, address }) => ({
    title: title.slice(0, 200),
    address: address.slice(0, 40_000),
  }));
}

// ---- CSV

// RFC 4180, with commas, semicolons or tabs; a quoted cell may hold line breaks.
function fromCsv(text, name) {
  const content = text.replace(/^\uFEFF/, "");
  const mark = separator(content.slice(0, content.search(/[\r\n]|$/)));
  const lines = cellsOf(content, mark, name);
  const header = lines.shift()?.map((cell) => cell.trim());
  if (!header?.length) return [];
  return lines.map((cells) =>
    Object.fromEntries(header.map((column, i) => [column, cells[i] ?? ""])),
  );
}

const separator = (line) =>
  [",", ";", "\t"].toSorted((a, b) => line.split(b).length - line.split(a).length)[0];

function cellsOf(text, mark, name) {
  const lines = [];
  let [line, cell, quoted, at] = [[], "", false, 0];
  const endCell = () => {
    line.push(cell);
    cell = "";
  };
  const endLine = () => {
    endCell();
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
  };
  for (; at < text.length; at++) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === mark) endCell();
    else if (letter === "\n") endLine();
    else if (letter !== "\r") cell += letter;
  }
  if (quoted) throw new Error(`${name} has a quote that does not end: is it a CSV?`);
  if (cell !== "" || line.length) endLine();
  return lines;
}

// ---- rows of a set

function rowsOf(records, name) {
  if (records.some((record) => !isObject(record)))
    throw new Error(`${name} holds something else than objects: give one for each text.`);
  if (records[0]?.alti_bench !== undefined) return { rows: benchRows(records.slice(1), name) };
  if (records.every((record) => record.source?.texts && record.predictions))
    return { rows: records.map(resultRow) };
  if (records.length && records.every(isListed)) return { rows: records.map(listedRow) };
  const columns = columnsOf(records[0]);
  if (!columns.column) {
    const names = Object.keys(records[0] ?? {});
    throw new Error(
      `${name} has no column of texts: name one of them text ` +
        `(it has ${names.slice(0, 8).join(", ") || "none"}).`,
    );
  }
  const rows = records.map((record, number) => plainRow(record, number, columns, name));
  return { rows, guessed: TEXTS.includes(columns.column) ? null : columns.column };
}

// The columns of the text, of a second one and of the label, by their names; else the first text.
function columnsOf(record = {}) {
  const names = Object.keys(record);
  const find = (known) => known.find((column) => names.includes(column));
  const isText = (name) => typeof record[name] === "string" && !LABELS.includes(name);
  return { column: find(TEXTS) ?? names.find(isText), pair: find(PAIRS), label: find(LABELS) };
}

function plainRow(record, number, { column, pair, label }, name) {
  const text = record[column];
  if (typeof text !== "string")
    throw new Error(`${name}: ${column} of row ${number + 1} is not a text.`);
  const other = pair === undefined ? null : record[pair];
  return {
    number,
    text,
    pair: typeof other === "string" && other ? other : null,
    label: labelOf(record[label]),
    prediction: null,
  };
}

const labelOf = (value) =>
  ["string", "number", "boolean"].includes(typeof value) && value !== "" ? String(value) : null;
const shareOf = (value) => (typeof value === "number" && value >= 0 && value <= 1 ? value : null);

// What Attribution.to_dict() gave: of several predictions the first.
function resultRow(result, number) {
  const [text, pair = null] = result.source.texts;
  const { label = null, index = null, probability = null } = result.predictions[0] ?? {};
  if (typeof text !== "string")
    throw new Error("A result in this file has no text: was it written by alti?");
  const prediction =
    label === null ? null : { label: String(label), index, probability: shareOf(probability) };
  const answered = result.source.answer !== undefined && result.source.answer !== null;
  return {
    number,
    text,
    pair: answered || typeof pair !== "string" ? null : pair,
    label: null,
    prediction,
  };
}

// A row of a folder that `alti explain --out` wrote, or of what `alti results --json` lists of it.
const isListed = (record) =>
  ["id", "text", "label", "target", "probability", "error"].every((name) =>
    Object.hasOwn(record, name),
  );

function listedRow({ text, pair, label, target, probability }, number) {
  const index = Number.isInteger(target) ? target : null;
  const prediction =
    typeof label === "string" ? { label, index, probability: shareOf(probability) } : null;
  return {
    number,
    text: typeof text === "string" ? text : "",
    pair: typeof pair === "string" ? pair : null,
    label: null,
    prediction,
  };
}

// Rows of `alti bench` hold numbers of texts, not the texts; a row for each method.
function benchRows(records, name) {
  const rows = new Map();
  for (const { text, gold, target, probability, right } of records) {
    if (!Number.isInteger(text))
      throw new Error(`${name} is a benchmark with a row that names no text.`);
    if (rows.has(text) || target === undefined) continue;
    const prediction = { label: null, index: target, probability: shareOf(probability) };
    rows.set(text, {
      number: text,
      text: null,
      pair: null,
      label: labelOf(gold),
      prediction,
      right: right ?? null,
    });
  }
  return [...rows.values()];
}

// A file of Attribution.save: safetensors, whose header holds the texts as JSON.
function savedResult(bytes) {
  if (bytes.length < 10 || bytes[8] !== 0x7b) return null;
  const size = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  if (size > bytes.length - 8) return null;
  const header = parsed(new TextDecoder().decode(bytes.subarray(8, 8 + size)));
  const result = parsed(header?.__metadata__?.alti ?? "");
  return result?.source?.texts && Array.isArray(result.predictions) ? result : null;
}

// ---- what is saved

// A cell that a spreadsheet would take for a formula is made text.
export function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const harmless = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
