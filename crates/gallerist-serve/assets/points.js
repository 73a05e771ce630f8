// The points of the map: reading them, finding them by place and by id.

export class Points {
  constructor(bytes, labels) {
    const n = Math.floor(bytes.byteLength / 20);
    this.count = n;
    this.labels = labels;
    this.ids = new BigUint64Array(bytes, 0, n);
    this.x = new Float32Array(bytes, 8 * n, n);
    this.y = new Float32Array(bytes, 12 * n, n);
    this.label = new Uint32Array(bytes, 16 * n, n);
    const [x0, x1] = range(this.x);
    const [y0, y1] = range(this.y);
    this.bounds = { x0, x1: x1 > x0 ? x1 : x0 + 1, y0, y1: y1 > y0 ? y1 : y0 + 1 };
    this.#file();
    this.#order = ascending(this.ids) ? null : Uint32Array.from(this.ids.keys()).sort((a, b) => (this.ids[a] < this.ids[b] ? -1 : 1));
  }

  #order;
  #side;
  #starts;
  #filed;

  id(index) {
    return this.ids[index].toString();
  }

  labelOf(index) {
    return this.labels[this.label[index]] ?? null;
  }

  // The index of an id, or -1.
  index(id) {
    const wanted = BigInt(id);
    let low = 0;
    let high = this.count - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const at = this.#order ? this.#order[middle] : middle;
      if (this.ids[at] === wanted) return at;
      if (this.ids[at] < wanted) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  // The points are stored by square cells, so that a search visits only the cells near a place.
  #file() {
    const { count, x, y } = this;
    const side = (this.#side = Math.max(1, Math.ceil(Math.sqrt(count / 4))));
    const cell = new Uint32Array(count);
    const starts = (this.#starts = new Uint32Array(side * side + 1));
    for (let i = 0; i < count; i++) starts[(cell[i] = this.#cell(x[i], y[i])) + 1]++;
    for (let c = 0; c < side * side; c++) starts[c + 1] += starts[c];
    const next = starts.slice();
    this.#filed = new Uint32Array(count);
    for (let i = 0; i < count; i++) this.#filed[next[cell[i]]++] = i;
  }

  #column(x) {
    const { x0, x1 } = this.bounds;
    return Math.max(0, Math.min(this.#side - 1, Math.floor(((x - x0) / (x1 - x0)) * this.#side)));
  }
  #line(y) {
    const { y0, y1 } = this.bounds;
    return Math.max(0, Math.min(this.#side - 1, Math.floor(((y - y0) / (y1 - y0)) * this.#side)));
  }
  #cell(x, y) {
    return this.#line(y) * this.#side + this.#column(x);
  }

  // Calls `visit` for the points of a rectangle until it returns false.
  within(x0, y0, x1, y1, visit) {
    const { x, y } = this;
    for (let line = this.#line(y0); line <= this.#line(y1); line++) {
      for (let column = this.#column(x0); column <= this.#column(x1); column++) {
        const c = line * this.#side + column;
        for (let at = this.#starts[c]; at < this.#starts[c + 1]; at++) {
          const i = this.#filed[at];
          if (x[i] >= x0 && x[i] <= x1 && y[i] >= y0 && y[i] <= y1 && visit(i) === false) return;
        }
      }
    }
  }

  nearest(x, y, radius) {
    let best = -1;
    let least = radius * radius;
    this.within(x - radius, y - radius, x + radius, y + radius, (i) => {
      const square = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      if (square < least) [best, least] = [i, square];
    });
    return best;
  }

  // The point nearest to a place, at any distance.
  closest(x, y) {
    const { x0, x1, y0, y1 } = this.bounds;
    const outside = Math.hypot(Math.max(x0 - x, 0, x - x1), Math.max(y0 - y, 0, y - y1));
    for (let radius = outside + Math.max(x1 - x0, y1 - y0) / this.#side; ; radius *= 2) {
      const found = this.nearest(x, y, radius);
      if (found >= 0) return found;
    }
  }

  // The points inside a polygon `[[x, y], …]`, by the even-odd rule, in the gallery's order.
  inside(polygon) {
    if (polygon.length < 3) return new Uint32Array(0);
    const [x0, x1] = range(polygon.map((p) => p[0]));
    const [y0, y1] = range(polygon.map((p) => p[1]));
    const found = [];
    this.within(x0, y0, x1, y1, (i) => {
      if (contains(polygon, this.x[i], this.y[i])) found.push(i);
    });
    return Uint32Array.from(found).sort();
  }
}

function range(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function ascending(ids) {
  for (let i = 1; i < ids.length; i++) if (ids[i] <= ids[i - 1]) return false;
  return true;
}

function contains(polygon, x, y) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [xi, yi] = polygon[i];
    const [xj, yj] = polygon[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}
