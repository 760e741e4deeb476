// The line that says what is waited for: the place in the queue, or how far a method is.

const FIRST = 500; // milliseconds before it appears
const NEXT = 400; // between two looks
const OFTEN = 120; // where a model writes

const at = (id) => document.getElementById(id);

export const newTicket = () => `${Date.now()}-${Math.random()}`;

// Show where the request with a ticket is, until the returned function is called; `wrote` is given
// the tokens that a model has written so far, and `show` the words where they are not for the line.
export function watch(ticket, wrote = null, show = null) {
  const pause = wrote ? OFTEN : NEXT;
  let timer = setTimeout(look, wrote ? OFTEN : FIRST);
  let over = false;
  async function look() {
    try {
      const response = await fetch(`/api/queue?ticket=${encodeURIComponent(ticket)}`);
      const state = await response.json();
      if (!over && state.state !== "unknown") (show ?? line)(words(state), state);
      if (!over && state.written) wrote?.(state.written);
    } catch {
      // the request itself will say what is wrong
    }
    if (!over) timer = setTimeout(look, pause);
  }
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

function words({ state, position, done, total }) {
  const open = done ? ` ${done} steps are done.` : "";
  const steps = total ? ` Step ${done} of ${total}.` : open;
  const texts = {
    waiting:
      position === 1 ? "One request is before yours." : `${position} requests are before yours.`,
    loading: "The model is being loaded again; your request keeps its place.",
    working: `Computing.${steps}`,
  };
  return texts[state];
}

function line(why, { done, total }) {
  at("waiting").hidden = false;
  at("waiting-why").textContent = why;
  at("waiting-bar").hidden = !total && !done;
  at("waiting-bar").max = total ?? 1;
  if (total) at("waiting-bar").value = done ?? 0;
  else at("waiting-bar").removeAttribute("value"); // it is not known how much there is to do
  at("cancel").textContent = "Cancel";
}

export const showNothing = () => (at("waiting").hidden = true);

// What is not computed, and a button for it.
export function offer(why, again = "Explain it") {
  at("waiting").hidden = false;
  at("waiting-why").textContent = why;
  at("waiting-bar").hidden = true;
  at("cancel").textContent = again;
}
