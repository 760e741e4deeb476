// Parts of the page that are opened when they are wanted, and only then ask the server.

import { remember, state } from "/state.js";
import { newTicket, watch } from "/waiting.js";

const PAUSE = 150; // milliseconds after the slider stopped
const KEPT = 40; // answers that are kept
const at = (id) => document.getElementById(id);
const opened = () => (state.open ?? "").split(",").filter(Boolean);

// Shows what `load` answers about the layer that the page shows; `key` says when it is the same.
export function drawer(name, { key, load, draw, fits = () => true }) {
  const box = at(name);
  const kept = new Map();
  let seen = null;
  let timer = null;
  let pending = null;

  async function update() {
    clearTimeout(timer);
    pending?.abort();
    pending = null;
    wait("");
    if (!seen || !box.open || !fits(seen)) return;
    const [asked, id] = [seen, key(seen)];
    if (kept.has(id)) {
      say("");
      draw(asked, kept.get(id));
      return;
    }
    pending = new AbortController();
    const { signal } = pending;
    box.setAttribute("aria-busy", "true");
    const ticket = newTicket();
    const over = watch(ticket, null, wait);
    signal.addEventListener("abort", over);
    try {
      const answer = await load(asked, signal, ticket);
      kept.set(key(asked), answer);
      if (kept.size > KEPT) kept.delete(kept.keys().next().value);
      if (signal.aborted) return;
      say("");
      draw(asked, answer);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    } finally {
      over();
      if (!signal.aborted) {
        box.removeAttribute("aria-busy");
        wait("");
      }
    }
  }

  const wait = (words) => {
    at(`${name}-waiting`).textContent = words;
    at(`${name}-waiting`).hidden = !words;
  };

  const say = (message) => {
    at(`${name}-error`).textContent = message;
    at(`${name}-error`).hidden = !message;
    at(`${name}-body`).hidden = Boolean(message);
  };

  document.addEventListener("layer-shown", ({ detail }) => {
    seen = detail;
    box.hidden = !fits(detail);
    box.open = opened().includes(name);
    clearTimeout(timer);
    timer = setTimeout(update, kept.has(key(detail)) ? 0 : PAUSE);
  });
  box.addEventListener("toggle", () => {
    const others = opened().filter((other) => other !== name);
    state.open = [...others, ...(box.open ? [name] : [])].join(",") || null;
    remember();
    update();
  });
}
