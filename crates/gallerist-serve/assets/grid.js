import { announce, button, h, notice } from "./dom.js";

const PAGE = 120;
const GAP = 12;
const SPARE_ROWS = 2;
// Browsers limit the height of elements to about 17 million pixels, which a million tiles exceed. Above this height, the
// scroll bar is scaled; scrolling by wheel or finger still moves by pixels.
const TALLEST = 8_000_000;

// A source is `{ load(offset, limit, signal) -> { items, total } }`. In the place of an item that is gone, it has null.
export const listed = (items) => ({ load: async (offset, limit) => ({ items: items.slice(offset, offset + limit), total: items.length }) });

// A virtual grid: only the visible rows exist as elements. `render(item, index)` creates the content of a cell,
// `update(cell, item, index)` updates its marks. Arrow keys move, Enter calls `enter(item, event)`, other keys call
// `key(event, item, index)`.
export class Grid {
  #source = null;
  #pages = new Map();
  #rows = new Map();
  #total = 0;
  #active = 0;
  #abort = new AbortController();
  #shift = 0;
  #lastTop = 0;
  // The scroll position. The browser does not keep it when the grid is removed from the page.
  #top = 0;
  #settle = 0;
  #columns = 1;
  #wanted = false;
  #rowHeight = 100;
  #options;
  #shape = "";

  constructor(label, options) {
    this.#options = { minimum: 132, fewest: 2, height: (width) => width + 26, update() {}, enter() {}, key: () => false, empty: () => notice("Nothing here"), ...options };
    this.space = h("div", { class: "space" });
    this.element = h("div", { class: "grid" + (this.#options.list ? " list" : ""), role: "grid", "aria-label": label }, this.space);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#pressed(event));
    this.element.addEventListener("focusin", (event) => {
      const cell = event.target.closest("[role=gridcell]");
      if (cell) this.#becomeActive(Number(cell.dataset.index));
    });
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  get total() {
    return this.#total;
  }

  get columns() {
    return this.#columns;
  }

  show(source) {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#source = source;
    this.#pages.clear();
    this.#clear();
    this.#shape = "";
    this.#total = 0;
    this.#active = 0;
    this.#shift = this.#lastTop = this.#top = this.element.scrollTop = 0;
    this.element.setAttribute("aria-busy", "true");
    this.space.replaceChildren();
    return this.#page(0);
  }

  item(index) {
    const page = this.#pages.get(Math.floor(index / PAGE));
    return page instanceof Promise ? undefined : page?.[index % PAGE];
  }

  refresh() {
    this.#cells((cell, index) => {
      const item = this.item(index);
      if (item) this.#options.update(cell, item, index);
    });
  }

  focus(index = this.#active) {
    // A cell that is still being loaded gets the focus when it exists.
    if (this.element.hasAttribute("aria-busy")) return void (this.#wanted = true);
    index = Math.max(0, Math.min(this.#total - 1, index));
    const row = Math.floor(index / this.#columns);
    const top = row * this.#rowHeight;
    const view = this.element.clientHeight;
    const virtual = this.element.scrollTop + this.#shift;
    if (top < virtual) this.#scrollTo(top);
    else if (top + this.#rowHeight > virtual + view) this.#scrollTo(top + this.#rowHeight - view);
    this.#draw();
    this.#becomeActive(index);
    this.#cell(index)?.focus({ preventScroll: true });
  }

  #load(number) {
    const { signal } = this.#abort;
    const loading = this.#source
      .load(number * PAGE, PAGE, signal)
      .then(({ items, total }) => {
        if (signal.aborted) return;
        this.#pages.set(number, items);
        const first = this.element.hasAttribute("aria-busy");
        this.element.removeAttribute("aria-busy");
        this.#total = total;
        if (total === 0) this.space.replaceChildren(this.#options.empty());
        // A page with fewer items than expected (the source did not know its end) is loaded again when it is visible.
        if (items.length < PAGE && number * PAGE + items.length < total) this.#pages.delete(number);
        if (first) this.#measure();
        else this.#arrived(number, items);
        if (this.#wanted && document.activeElement.matches("body, main")) this.focus();
        this.#wanted = false;
      })
      .catch((error) => {
        if (signal.aborted) return;
        this.#pages.delete(number);
        this.element.removeAttribute("aria-busy");
        if (this.#total === 0) {
          const again = button("Try again", () => this.show(this.#source));
          this.space.replaceChildren(notice(error.message, error.hint, again, "error"));
        }
        announce(error.message);
      });
    this.#pages.set(number, loading);
    return loading;
  }

  async #page(number) {
    return this.#pages.get(number) ?? this.#load(number);
  }

  #arrived(number, items) {
    const first = number * PAGE;
    this.space.style.height = `${this.#real()}px`;
    this.#cells((cell, index) => {
      if (index < first || index >= first + items.length || !cell.classList.contains("blank")) return;
      this.#fill(cell, index, items[index - first]);
    });
    this.#draw();
  }

  #measure() {
    const width = this.space.clientWidth;
    if (!width || !this.#source) return;
    const shape = `${width} ${this.#total}`;
    if (shape === this.#shape && this.element.scrollTop + this.#shift === this.#top) return this.#draw();
    this.#shape = shape;
    const focused = this.element.contains(document.activeElement) && document.activeElement.matches("[role=gridcell]");
    const { height, minimum, fewest, list } = this.#options;
    const firstSeen = Math.floor(this.#top / this.#rowHeight) * this.#columns;
    this.#columns = list ? 1 : Math.max(fewest, Math.floor((width + GAP) / (minimum + GAP)));
    this.#rowHeight = Math.floor(height((width - GAP * (this.#columns - 1)) / this.#columns)) + GAP;
    this.space.style.setProperty("--columns", this.#columns);
    this.element.setAttribute("aria-rowcount", this.#rowCount());
    this.element.setAttribute("aria-colcount", this.#columns);
    this.space.style.height = this.#total ? `${this.#real()}px` : "";
    this.#clear();
    if (this.#top > 0) this.#scrollTo(Math.floor(firstSeen / this.#columns) * this.#rowHeight);
    this.#draw();
    if (focused) this.focus();
  }

  #rowCount() {
    return Math.ceil(this.#total / this.#columns);
  }
  #height() {
    return this.#rowCount() * this.#rowHeight;
  }
  #real() {
    return Math.min(TALLEST, this.#height());
  }

  // Sets the scroll bar to this position of the grid without moving the visible rows.
  #scrollTo(virtual) {
    const view = this.element.clientHeight;
    const furthest = Math.max(0, this.#height() - view);
    virtual = Math.max(0, Math.min(furthest, virtual));
    const top = furthest ? Math.round((virtual / furthest) * Math.max(0, this.#real() - view)) : 0;
    this.#shift = Math.round(virtual - top);
    this.element.scrollTop = top;
    this.#lastTop = this.element.scrollTop;
    this.#top = virtual;
    this.#place();
  }

  #scrolled() {
    const { scrollTop, clientHeight } = this.element;
    if (!clientHeight) return;
    if (this.#height() > TALLEST) {
      if (Math.abs(scrollTop - this.#lastTop) > 2 * clientHeight) {
        this.#shift = Math.round((scrollTop / (this.#real() - clientHeight)) * (this.#height() - clientHeight)) - scrollTop;
        this.#place();
      } else if (scrollTop !== this.#lastTop) {
        clearTimeout(this.#settle);
        this.#settle = setTimeout(() => this.#scrollTo(this.element.scrollTop + this.#shift), 200);
      }
    }
    this.#lastTop = scrollTop;
    this.#top = scrollTop + this.#shift;
    this.#draw();
  }

  #place() {
    for (const [row, element] of this.#rows) this.#placeRow(row, element);
  }
  #placeRow(row, element) {
    element.style.transform = `translateY(${row * this.#rowHeight - this.#shift}px)`;
  }

  #clear() {
    this.#rows.forEach((row) => row.remove());
    this.#rows.clear();
  }

  #draw() {
    const top = this.element.scrollTop + this.#shift;
    const first = Math.max(0, Math.floor(top / this.#rowHeight) - SPARE_ROWS);
    const last = Math.min(this.#rowCount() - 1, Math.floor((top + this.element.clientHeight) / this.#rowHeight) + SPARE_ROWS);
    for (const [row, element] of this.#rows) {
      if ((row < first || row > last) && !element.contains(document.activeElement)) {
        element.remove();
        this.#rows.delete(row);
      }
    }
    for (let row = first; row <= last; row++) {
      if (!this.#rows.has(row)) this.#addRow(row);
    }
  }

  #addRow(row) {
    const element = h("div", { class: "row", role: "row", "aria-rowindex": String(row + 1) });
    const end = Math.min(this.#total, (row + 1) * this.#columns);
    for (let index = row * this.#columns; index < end; index++) {
      const cell = h("div", { class: "cell blank", role: "gridcell", tabindex: index === this.#active ? "0" : "-1" });
      cell.dataset.index = index;
      cell.setAttribute("aria-colindex", (index % this.#columns) + 1);
      const item = this.item(index);
      if (item !== undefined) this.#fill(cell, index, item);
      else this.#page(Math.floor(index / PAGE));
      element.append(cell);
    }
    this.#placeRow(row, element);
    this.#rows.set(row, element);
    // The rows are in order in the document, for screen readers.
    const next = [...this.#rows.keys()].filter((other) => other > row).sort((a, b) => a - b)[0];
    this.space.insertBefore(element, next === undefined ? null : this.#rows.get(next));
  }

  #fill(cell, index, item) {
    cell.classList.remove("blank");
    if (item === null) return cell.replaceChildren(h("div", { class: "picture words" }, h("span", {}, "not in the gallery")));
    cell.replaceChildren(this.#options.render(item, index));
    this.#options.update(cell, item, index);
  }

  #cells(visit) {
    for (const row of this.#rows.values()) for (const cell of row.children) visit(cell, Number(cell.dataset.index));
  }
  #cell(index) {
    return this.#rows.get(Math.floor(index / this.#columns))?.children[index % this.#columns];
  }

  #becomeActive(index) {
    this.#cell(this.#active)?.setAttribute("tabindex", "-1");
    this.#active = index;
    this.#cell(index)?.setAttribute("tabindex", "0");
  }

  #pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!event.target.matches("[role=gridcell]")) return;
    const screen = this.#columns * Math.max(1, Math.floor(this.element.clientHeight / this.#rowHeight));
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.#columns, ArrowUp: -this.#columns, PageDown: screen, PageUp: -screen, Home: -Infinity, End: Infinity }[event.key];
    const item = this.item(this.#active);
    if (step !== undefined) {
      const to = this.#active + step;
      // A step up or down that would leave the grid stays in its column.
      if (Math.abs(step) !== 1 && Number.isFinite(step) && (to < 0 || to >= this.#total) && Math.abs(step) === this.#columns) return event.preventDefault();
      this.focus(Number.isFinite(to) ? to : to < 0 ? 0 : this.#total - 1);
    } else if (event.key === "Enter" && item) {
      this.#options.enter(item, event);
    } else if (!item || !this.#options.key(event, item, this.#active)) {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
