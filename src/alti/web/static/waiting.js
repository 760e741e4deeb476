// The line that says what is waited for: the place in the queue, or how far a method is.

const FIRST = 500; // milliseconds before it appears
const NEXT = 400; // between two looks

const at = (id) => document.getElementById(id);

export const newTicket = () => `${Date.now()}-${Math.random()}`;

// Show where the request with a ticket is, until the returned function is called.
export function watch(ticket) {
  let timer = setTimeout(look, FIRST);
  let over = false;
  async function look() {
    try {
      const response = await fetch(`/api/queue?ticket=${encodeURIComponent(ticket)}`);
      const state = await response.json();
      if (!over) say(state);
    } catch {
      // the request itself will say what is wrong
    }
    if (!over) timer = setTimeout(look, NEXT);
  }
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

function say({ state, position, done, total }) {
  if (state === "unknown") return;
  const parts = total ? ` ${done} of ${total} parts are done.` : "";
  const texts = {
    waiting: position === 1 ? "One request is before yours." : `${position} requests are before yours.`,
    loading: "The model is being loaded again; your request keeps its place.",
    working: `Computing.${parts}`,
  };
  at("waiting").hidden = false;
  at("waiting-why").textContent = texts[state];
  at("waiting-bar").hidden = !total;
  at("waiting-bar").max = total ?? 1;
  at("waiting-bar").value = done ?? 0;
  at("cancel").textContent = "Cancel";
}

export const showNothing = () => (at("waiting").hidden = true);

export function showCancelled() {
  at("waiting").hidden = false;
  at("waiting-why").textContent = "Cancelled: this text is not explained.";
  at("waiting-bar").hidden = true;
  at("cancel").textContent = "Explain it";
}
