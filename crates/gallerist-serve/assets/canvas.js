// Draws the map: all points by WebGL 2 in one call, and the highlighted points above them in 2D.

// The colours of Okabe and Ito, which colour-blind people can distinguish, with a darker yellow, and violet instead of
// black. There are more classes than colours, so the colours repeat.
export const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b59f00", "#7a6fd0"];

// Shapes and colours of the highlighted points.
export const QUERY = "query";
export const RIGHT = "right";
export const WRONG = "wrong";
export const RESULT = "result";
export const HOVER = "hover";

// If drawing the points takes longer than this (without a GPU, or with very many points), the page moves the picture of
// the points and draws it again when the movement ends. The picture exceeds the stage by this share on each side.
const SLOW_MS = 14;
const BEYOND = 0.3;

// The margin between the edges and the points, in pixels.
const MARGIN = 24;

// From this multiple of the scale at which all points are visible, some point is always within this share of the stage
// from its centre.
const CLOSE = 1.5;
const MIDDLE = 0.3;

// The largest scale, as a multiple of half the scale at which all points are visible.
const FURTHEST_IN = 20_000;

const VERTEX = `#version 300 es
in vec2 place; in float hue; in float chosen;
uniform vec2 centre, scale; uniform float size; uniform int pass; uniform vec4 hues[9]; uniform vec4 faded;
out vec4 colour;
void main() {
  bool skip = (pass == 1 && chosen > 0.5) || (pass == 2 && chosen < 0.5);
  colour = pass == 1 ? faded : hues[int(hue)];
  gl_Position = skip ? vec4(2.0, 2.0, 0.0, 1.0) : vec4((place - centre) * scale, 0.0, 1.0);
  gl_PointSize = pass == 2 ? size * 1.3 : size;
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour; uniform bool disc; out vec4 pixel;
void main() {
  if (disc && distance(gl_PointCoord, vec2(0.5)) > 0.5) discard;
  pixel = colour;
}`;

function program(gl) {
  const made = gl.createProgram();
  for (const [type, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(made));
  gl.useProgram(made);
  const at = (name) => gl.getUniformLocation(made, name);
  const uniforms = Object.fromEntries(["centre", "scale", "size", "pass", "hues", "faded", "disc"].map((name) => [name, at(name)]));
  const buffers = {};
  for (const [name, count, type] of [["place", 2, gl.FLOAT], ["hue", 1, gl.UNSIGNED_BYTE], ["chosen", 1, gl.UNSIGNED_BYTE]]) {
    const attribute = gl.getAttribLocation(made, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, (buffers[name] = gl.createBuffer()));
    gl.enableVertexAttribArray(attribute);
    gl.vertexAttribPointer(attribute, count, type, false, 0, 0);
  }
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  return { uniforms, buffers };
}

const rgba = (hex, alpha) => [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) * alpha).concat(alpha);

export class Canvas {
  #gl;
  #program;
  #layer;
  #points;
  #marks = [];
  #anyChosen = false;
  #stale = true;
  #asked = 0;
  #rest = 0;
  #cost = 0;
  #fence = null;
  #drawn = { x: 0, y: 0, scale: 1, at: 0 };

  // `below` shows the points and `above` the highlighted ones; both fill `stage`. `moved` is called in every frame, so that
  // other elements above the points move with them.
  constructor(stage, below, above, points, moved) {
    Object.assign(this, { stage, below, above, moved, centre: { x: 0, y: 0 }, scale: 1, width: 0, height: 0 });
    this.#points = points;
    this.#gl = below.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true });
    if (!this.#gl) throw new Error("this browser does not support WebGL 2");
    this.#layer = above.getContext("2d");
    this.#upload();
    below.addEventListener("webglcontextlost", (event) => event.preventDefault());
    below.addEventListener("webglcontextrestored", () => {
      this.#upload();
      this.restored?.();
    });
    new ResizeObserver(() => this.#resize()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  #fill(name, data) {
    const gl = this.#gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.#program.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  }

  #upload() {
    this.#program = program(this.#gl);
    const points = this.#points;
    const place = new Float32Array(2 * points.count);
    const hue = new Uint8Array(points.count);
    for (let i = 0; i < points.count; i++) {
      place[2 * i] = points.x[i];
      place[2 * i + 1] = points.y[i];
      hue[i] = points.label[i] < points.labels.length ? points.label[i] % HUES.length : HUES.length;
    }
    this.#fill("place", place);
    this.#fill("hue", hue);
    this.choose(null);
  }

  // One byte per point: whether it keeps its colour while the others fade. Null: all keep it.
  choose(mask) {
    if (mask || this.#anyChosen || this.#stale) this.#fill("chosen", mask ?? new Uint8Array(this.#points.count));
    this.#anyChosen = mask !== null;
    this.redraw();
  }

  // The highlighted points, `[{ index, kind }]`; the last is on top.
  mark(marks) {
    this.#marks = marks;
    this.#ask();
  }

  // The scale at which all points are visible.
  fitting() {
    const { x0, x1, y0, y1 } = this.#points.bounds;
    return Math.max(1e-9, Math.min((this.width - 2 * MARGIN) / (x1 - x0), (this.height - 2 * MARGIN) / (y1 - y0)));
  }
  fit() {
    const { x0, x1, y0, y1 } = this.#points.bounds;
    this.look({ x: (x0 + x1) / 2, y: (y0 + y1) / 2 }, this.fitting());
  }
  // Shows this place at this scale, moved if necessary so that some point is visible.
  look(centre, scale) {
    if (this.width) {
      const least = this.fitting() / 2;
      scale = Math.max(least, Math.min(least * FURTHEST_IN, scale));
    }
    this.scale = scale;
    this.centre = this.#kept(centre);
    this.#ask();
  }
  #kept({ x, y }) {
    // At a large scale that point is in the middle, where neither tools nor the legend cover it.
    const close = this.scale > CLOSE * this.fitting();
    const reach = (pixels) => (close ? MIDDLE * pixels : Math.max(0, pixels / 2 - MARGIN)) / this.scale;
    const [w, h] = [reach(this.width), reach(this.height)];
    let some = !this.width;
    if (!some) this.#points.within(x - w, y - h, x + w, y + h, () => !(some = true));
    if (some) return { x, y };
    const near = this.#points.closest(x, y);
    const between = (value, middle, far) => Math.max(middle - far, Math.min(middle + far, value));
    return { x: between(x, this.#points.x[near], w), y: between(y, this.#points.y[near], h) };
  }
  zoom(factor, at = { x: this.width / 2, y: this.height / 2 }) {
    const before = this.world(at);
    const least = this.fitting() / 2;
    this.scale = Math.max(least, Math.min(least * FURTHEST_IN, this.scale * factor));
    const after = this.world(at);
    this.look({ x: this.centre.x + before.x - after.x, y: this.centre.y + before.y - after.y }, this.scale);
  }
  pan(dx, dy) {
    this.look({ x: this.centre.x - dx / this.scale, y: this.centre.y + dy / this.scale }, this.scale);
  }

  // Converts pixels of the stage to places of the map, and back.
  world({ x, y }) {
    return { x: this.centre.x + (x - this.width / 2) / this.scale, y: this.centre.y - (y - this.height / 2) / this.scale };
  }
  screen(x, y) {
    return { x: (x - this.centre.x) * this.scale + this.width / 2, y: (this.centre.y - y) * this.scale + this.height / 2 };
  }

  #beyond() {
    return this.#cost > SLOW_MS ? BEYOND : 0;
  }

  #resize() {
    const { clientWidth, clientHeight } = this.stage;
    if (!clientWidth || !clientHeight) return;
    Object.assign(this, { width: clientWidth, height: clientHeight });
    this.resized?.();
    this.redraw();
  }

  redraw() {
    this.#stale = true;
    this.#ask();
  }

  #ask() {
    this.#asked ||= requestAnimationFrame(() => {
      this.#asked = 0;
      if (this.width && !this.#gl.isContextLost()) this.#frame();
    });
  }

  #frame() {
    const { x, y, scale, at } = this.#drawn;
    if (this.#stale) {
      this.#draw();
    } else if (x !== this.centre.x || y !== this.centre.y || scale !== this.scale) {
      if (this.#cost <= SLOW_MS) {
        this.#draw();
      } else {
        const bare = this.#slide();
        if (bare && performance.now() - at > 8 * this.#cost) {
          this.#draw();
        } else {
          clearTimeout(this.#rest);
          this.#rest = setTimeout(() => this.redraw(), 150);
        }
      }
    }
    this.#drawMarks();
    this.moved();
  }

  // Moves the drawn picture to its present position. Returns true if it no longer covers the stage.
  #slide() {
    const { x, y, scale } = this.#drawn;
    const grown = this.scale / scale;
    const middle = this.screen(x, y);
    const dx = middle.x - this.width / 2;
    const dy = middle.y - this.height / 2;
    this.below.style.transform = `translate(${dx}px, ${dy}px) scale(${grown})`;
    const reach = 1 + 2 * BEYOND;
    return Math.abs(dx) > (this.width / 2) * (reach * grown - 1) || Math.abs(dy) > (this.height / 2) * (reach * grown - 1) || grown > 3;
  }

  #draw() {
    const gl = this.#gl;
    const { uniforms } = this.#program;
    const { count } = this.#points;
    const began = performance.now();
    clearTimeout(this.#rest);
    const ratio = Math.min(2, devicePixelRatio || 1);
    const beyond = this.#beyond();
    const width = this.width * (1 + 2 * beyond);
    const height = this.height * (1 + 2 * beyond);
    const size = { width: Math.round(width * ratio), height: Math.round(height * ratio) };
    if (this.below.width !== size.width || this.below.height !== size.height) Object.assign(this.below, size);
    Object.assign(this.below.style, { left: `${-this.width * beyond}px`, top: `${-this.height * beyond}px`, width: `${width}px`, height: `${height}px`, transform: "" });
    gl.viewport(0, 0, size.width, size.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const near = Math.sqrt(Math.max(1, this.scale / this.fitting()));
    const base = count > 300_000 ? 1.5 : count > 30_000 ? 2.5 : count > 5_000 ? 3.5 : 5;
    const diameter = Math.min(14, base * Math.min(near, 5)) * ratio;
    const alpha = count > 100_000 ? 0.7 : 0.85;
    gl.uniform2f(uniforms.centre, this.centre.x, this.centre.y);
    gl.uniform2f(uniforms.scale, (2 * this.scale) / width, (2 * this.scale) / height);
    gl.uniform4fv(uniforms.hues, [...HUES, dark ? "#a3a29a" : "#64645e"].flatMap((hex) => rgba(hex, alpha)));
    gl.uniform4fv(uniforms.faded, rgba(dark ? "#8c8b84" : "#9c9b93", 0.35));
    gl.uniform1f(uniforms.size, diameter);
    gl.uniform1i(uniforms.disc, diameter > 3 ? 1 : 0);
    for (const pass of this.#anyChosen ? [1, 2] : [0]) {
      gl.uniform1i(uniforms.pass, pass);
      gl.drawArrays(gl.POINTS, 0, count);
    }
    this.#stale = false;
    this.#drawn = { ...this.centre, scale: this.scale, at: began };
    this.#time(began);
  }

  // Measures how long the GPU takes for the points; it draws them while this program continues.
  #time(began) {
    if (this.#fence) return;
    const gl = this.#gl;
    this.#fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    const look = () => {
      if (gl.isContextLost()) return void (this.#fence = null);
      if (gl.getSyncParameter(this.#fence, gl.SYNC_STATUS) !== gl.SIGNALED) return void setTimeout(look, 2);
      gl.deleteSync(this.#fence);
      this.#fence = null;
      const took = performance.now() - began;
      const beyond = this.#beyond();
      this.#cost = this.#cost ? 0.7 * this.#cost + 0.3 * took : took;
      if (this.#beyond() > beyond) this.redraw();
    };
    setTimeout(look, 0);
  }

  #drawMarks() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const size = { width: Math.round(this.width * ratio), height: Math.round(this.height * ratio) };
    if (this.above.width !== size.width || this.above.height !== size.height) Object.assign(this.above, size);
    const layer = this.#layer;
    layer.setTransform(ratio, 0, 0, ratio, 0, 0);
    layer.clearRect(0, 0, this.width, this.height);
    if (!this.#marks.length) return;
    const style = getComputedStyle(this.stage);
    const ink = (name) => style.getPropertyValue(name).trim();
    const inks = { query: ink("--ink"), right: ink("--right"), wrong: ink("--wrong"), result: ink("--accent"), hover: ink("--ink") };
    const halo = ink("--page");
    layer.lineCap = "round";
    layer.lineJoin = "round";
    for (const { index, kind } of this.#marks) {
      const { x, y } = this.screen(this.#points.x[index], this.#points.y[index]);
      if (x < -20 || y < -20 || x > this.width + 20 || y > this.height + 20) continue;
      const paint = SHAPES[kind];
      layer.save();
      layer.translate(x, y);
      for (const [colour, extra] of [[halo, 3], [inks[kind], 0]]) {
        layer.strokeStyle = layer.fillStyle = colour;
        paint(layer, extra);
      }
      layer.restore();
    }
  }
}

function disc(layer, radius) {
  layer.beginPath();
  layer.arc(0, 0, radius, 0, 2 * Math.PI);
}

// Each shape is drawn twice: first wider, in the colour of the page, then in its own colour.
const SHAPES = {
  [RESULT](layer, extra) {
    disc(layer, 4.5 + extra / 2);
    layer.fill();
  },
  [RIGHT](layer, extra) {
    const r = 6 + extra / 2;
    layer.beginPath();
    layer.moveTo(0, -r);
    layer.lineTo(r, 0);
    layer.lineTo(0, r);
    layer.lineTo(-r, 0);
    layer.fill();
  },
  [WRONG](layer, extra) {
    layer.lineWidth = 2.5 + extra;
    layer.beginPath();
    layer.moveTo(-4, -4);
    layer.lineTo(4, 4);
    layer.moveTo(4, -4);
    layer.lineTo(-4, 4);
    layer.stroke();
  },
  [QUERY](layer, extra) {
    disc(layer, 5 + extra / 2);
    layer.fill();
    layer.lineWidth = 2 + extra;
    disc(layer, 9);
    layer.stroke();
  },
  [HOVER](layer, extra) {
    layer.lineWidth = 2.5 + extra;
    disc(layer, 11);
    layer.stroke();
  },
};
