// Choosing a token or several next to each other: with a mouse, a finger or the arrow keys.

// `chosen(first, end)` is called with the numbers of the first node and of the one behind the last.
export function dragged(box, nodes, chosen) {
  let anchor = null; // where a drag or a selection by keys began
  let last = null;
  const before = nodes.map((node) => node.getAttribute("aria-selected"));
  const whole = box.classList.contains("whole");
  const mark = (i) => {
    last = i;
    box.classList.remove("whole"); // all of it has no mark
    const [first, end] = [Math.min(anchor, last), Math.max(anchor, last)];
    nodes.forEach((node, n) => node.setAttribute("aria-selected", String(n >= first && n <= end)));
  };
  const giveUp = () => {
    anchor = null;
    nodes.forEach((node, n) => node.setAttribute("aria-selected", before[n]));
    box.classList.toggle("whole", whole);
  };
  const finish = () => {
    if (anchor === null) return;
    const range = [Math.min(anchor, last), Math.max(anchor, last) + 1];
    anchor = null;
    chosen(...range);
  };
  const under = ({ clientX, clientY }) =>
    nodes.indexOf(document.elementFromPoint(clientX, clientY)?.closest("[data-token]"));

  box.addEventListener("pointerdown", (event) => {
    const i = nodes.indexOf(event.target.closest("[data-token]"));
    if (i < 0 || event.button !== 0) return;
    event.preventDefault(); // no selection of text
    focusOn(nodes, i);
    anchor = i;
    mark(i);
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointermove", (event) => {
    if (anchor === null || !box.hasPointerCapture?.(event.pointerId)) return;
    const i = under(event);
    if (i >= 0 && i !== last) mark(i);
  });
  box.addEventListener("pointerup", finish);
  box.addEventListener("pointercancel", giveUp);
  box.addEventListener("click", (event) => {
    if (event.detail) return; // of a pointer, which was handled; a screen reader clicks without one
    const i = nodes.indexOf(event.target.closest("[data-token]"));
    if (i >= 0) chosen(i, i + 1);
  });
  box.addEventListener("keydown", (event) => {
    const i = nodes.indexOf(document.activeElement);
    if (i < 0) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = Math.max(0, Math.min(nodes.length - 1, i + step));
      focusOn(nodes, next);
      if (event.shiftKey) {
        anchor ??= i;
        mark(next);
      } else giveUp();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      anchor ??= i;
      last = i;
      finish();
    }
  });
}

function focusOn(nodes, i) {
  nodes.forEach((node, n) => (node.tabIndex = n === i ? 0 : -1));
  nodes[i].focus({ preventScroll: true });
}
