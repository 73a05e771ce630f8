// The distances of the query to all items of the gallery, as a histogram: a range of it is a filter of the results.

import { button, fraction, h, plural, replace } from "./dom.js";
import * as session from "./session.js";
import * as state from "./state.js";

const { BARS } = session;
// The results follow a drag after a pause of so many milliseconds.
const PAUSE = 120;

const NAMESPACE = "http://www.w3.org/2000/svg";

function bar(name, at, height, from = 0) {
  const rect = document.createElementNS(NAMESPACE, "rect");
  for (const [key, value] of Object.entries({ class: name, x: at + 0.1, y: 1 - from - height, width: 0.8, height })) rect.setAttribute(key, value);
  return rect;
}

// The histogram below the bar of the ranked list. `show(histogram)` draws it; null hides it.
export function make() {
  const drawing = document.createElementNS(NAMESPACE, "svg");
  drawing.setAttribute("viewBox", `0 0 ${BARS} 1`);
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  const chosen = h("i", { class: "chosen" });
  const ends = ["from", "to"].map((name) => h("span", { class: `end ${name}`, role: "slider", tabindex: "0", "aria-label": name === "from" ? "Smallest distance" : "Largest distance", "aria-valuemin": "0", "aria-valuemax": String(BARS) }));
  const bounds = h("span", { class: "bounds", "aria-hidden": "true" });
  const field = h("div", { class: "field-of-bars" }, drawing, bounds, chosen, ends);
  const facts = h("span", { class: "soft", role: "status" });
  const actions = h("span", {});
  const element = h("div", { class: "histogram", role: "group", "aria-label": "Histogram of the distances", hidden: true }, field, h("div", { class: "scale-of-bars" }, facts, actions));

  let shown = null;
  // The chosen bars, from the first to before the last.
  let range = [0, BARS];
  let timer = 0;

  const edge = (bar) => shown.low + ((shown.high - shown.low) * bar) / BARS;
  const place = (distance, otherwise) => {
    const at = ((Number(distance) - shown.low) / (shown.high - shown.low || 1)) * BARS;
    return distance === "" || !Number.isFinite(at) ? otherwise : Math.max(0, Math.min(BARS, Math.round(at)));
  };

  function draw() {
    const [from, to] = range;
    chosen.style.left = `${(100 * from) / BARS}%`;
    chosen.style.width = `${(100 * (to - from)) / BARS}%`;
    ends.forEach((end, i) => {
      end.style.left = `${(100 * range[i]) / BARS}%`;
      end.setAttribute("aria-valuenow", String(range[i]));
      end.setAttribute("aria-valuetext", fraction(edge(range[i])));
    });
    const count = shown.counts.slice(from, to).reduce((sum, n) => sum + n, 0);
    const all = from === 0 && to === BARS;
    const of = shown.complete ? plural(shown.total, "item") : `the ${plural(shown.total, "nearest item")}`;
    facts.textContent = `${all ? of : `${plural(count, "item")} of ${of}`}, distances ${fraction(edge(from))} to ${fraction(edge(to))}`;
    replace(actions, all ? [] : [button("All distances", () => choose(0, BARS, true), { class: "quiet" })]);
  }

  function choose(from, to, now = false) {
    range = [Math.max(0, Math.min(from, BARS - 1)), Math.max(1, Math.min(to, BARS))];
    draw();
    clearTimeout(timer);
    // The end of the range is rounded away from its inside, so that an item at the edge of a bar stays in it.
    const text = (bar, up) => String(Number((edge(bar) + (up ? 5e-7 : -5e-7)).toPrecision(6)));
    const set = () => state.set({ from: range[0] > 0 ? text(range[0], false) : "", to: range[1] < BARS ? text(range[1], true) : "" }, { quiet: true });
    if (now) set();
    else timer = setTimeout(set, PAUSE);
  }

  let drag = null;
  const at = (event) => {
    const box = field.getBoundingClientRect();
    return Math.max(0, Math.min(BARS, ((event.clientX - box.left) / box.width) * BARS));
  };
  field.addEventListener("pointerdown", (event) => {
    if (event.button > 0 || !shown) return;
    event.preventDefault();
    field.setPointerCapture(event.pointerId);
    const end = ends.indexOf(event.target);
    drag = { end, from: at(event), moved: end >= 0 };
    ends[Math.max(0, end)].focus();
  });
  field.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const to = at(event);
    drag.moved ||= Math.abs(to - drag.from) > 0.5;
    if (!drag.moved) return;
    if (drag.end === 0) choose(Math.min(Math.round(to), range[1] - 1), range[1]);
    else if (drag.end === 1) choose(range[0], Math.max(Math.round(to), range[0] + 1));
    else choose(Math.floor(Math.min(drag.from, to)), Math.ceil(Math.max(drag.from, to)));
  });
  const lifted = () => {
    if (drag?.moved) choose(...range, true);
    drag = null;
  };
  field.addEventListener("pointerup", lifted);
  field.addEventListener("pointercancel", lifted);
  ends.forEach((end, i) =>
    end.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const [from, to] = range;
      const ahead = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -BARS, End: BARS }[event.key];
      if (event.key === "Escape") choose(0, BARS, true);
      else if (!ahead) return;
      else if (i === 0) choose(Math.min(from + ahead, to - 1), to);
      else choose(from, Math.max(to + ahead, from + 1));
      event.preventDefault();
      event.stopPropagation();
    }),
  );

  return {
    element,
    show(histogram) {
      element.hidden = !histogram?.total;
      if (element.hidden) return;
      shown = histogram;
      const { counts, right } = shown;
      // Roots, because few of many items are close.
      const most = Math.sqrt(Math.max(...counts));
      const bars = counts.flatMap((count, i) => {
        const whole = Math.sqrt(count) / most;
        const part = right && count ? (whole * right[i]) / count : 0;
        return count ? [bar("right", i, part), bar("other", i, whole - part, part)] : [];
      });
      drawing.replaceChildren(...bars);
      const { threshold } = session.gallery;
      const lines = threshold ? [["match", threshold.distance], ["near", threshold.near]] : [];
      bounds.replaceChildren(
        ...lines.filter(([, distance]) => distance > shown.low && distance < shown.high).map(([name, distance]) => {
          const line = h("i", { class: name, title: `${name === "match" ? "threshold" : "near"} ${fraction(distance)}` });
          line.style.left = `${(100 * (distance - shown.low)) / (shown.high - shown.low)}%`;
          return line;
        }),
      );
      const s = state.get();
      if (!drag) range = [place(s.from, 0), Math.max(place(s.from, 0) + 1, place(s.to, BARS))];
      draw();
    },
  };
}
