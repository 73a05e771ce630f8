// Draws the points: WebGL 2, one call for all of them and one for the few that stand out.

// Okabe and Ito's colours that stay apart for colour-blind eyes, with a darker yellow; there are more classes than
// colours, so they repeat.
export const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b59f00", "#7a6fd0"];
const NO_LABEL = HUES.length;

export const QUERY = 0;
export const RIGHT = 1;
export const WRONG = 2;
export const RESULT = 3;
export const HOVER = 4;

const PLAIN = `#version 300 es
in vec2 place; in float hue; in float chosen;
uniform vec2 centre, scale; uniform float size, pass; uniform vec4 hues[9]; uniform vec4 faded;
out vec4 colour;
void main() {
  colour = pass == 1.0 ? faded : hues[int(hue)];
  bool skip = (pass == 1.0 && chosen > 0.5) || (pass == 2.0 && chosen < 0.5);
  gl_Position = skip ? vec4(2.0, 2.0, 0.0, 1.0) : vec4((place - centre) * scale, 0.0, 1.0);
  gl_PointSize = pass == 1.0 ? size : pass == 2.0 ? size * 1.3 : size;
}`;
const PLAIN_FILL = `#version 300 es
precision mediump float;
in vec4 colour; uniform float round; out vec4 pixel;
void main() {
  if (round > 0.5 && distance(gl_PointCoord, vec2(0.5)) > 0.5) discard;
  pixel = colour;
}`;
const MARKED = `#version 300 es
in vec2 place; in float kind;
uniform vec2 centre, scale; uniform float size;
flat out int shape;
void main() {
  shape = int(kind);
  gl_Position = vec4((place - centre) * scale, 0.0, 1.0);
  gl_PointSize = size * (shape == 0 ? 1.7 : shape == 4 ? 1.9 : 1.0);
}`;
// Shapes beside the colours: query a ringed disc, right a filled diamond, wrong a cross, else a disc.
const MARKED_FILL = `#version 300 es
precision highp float;
flat in int shape; uniform vec4 inks[5]; uniform vec4 halo; out vec4 pixel;
float form(vec2 p) {
  vec2 a = abs(p);
  if (shape == 0) { float r = length(p); return min(r - 0.22, abs(r - 0.38) - 0.045); }
  if (shape == 1) return (a.x + a.y - 0.40) * 0.7;
  if (shape == 2) { vec2 q = vec2(a.x + a.y, a.x - a.y) * 0.7071; q = abs(q); return min(max(q.x - 0.45, q.y - 0.10), max(q.y - 0.45, q.x - 0.10)); }
  if (shape == 3) return length(p) - 0.30;
  return abs(length(p) - 0.42) - 0.05;
}
void main() {
  float d = form(gl_PointCoord - 0.5);
  float soft = fwidth(d) + 0.005;
  float inside = 1.0 - smoothstep(-soft, soft, d);
  float around = 1.0 - smoothstep(0.07 - soft, 0.07 + soft, d);
  vec4 c = mix(halo, inks[shape], inside);
  pixel = vec4(c.rgb, 1.0) * around * c.a;
}`;

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [type, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  return made;
}

const rgba = (hex, alpha = 1) => [1, 3, 5].map((at) => (parseInt(hex.slice(at, at + 2), 16) / 255) * alpha).concat(alpha);

export class Canvas {
  #gl;
  #plain;
  #marked;
  #buffers;
  #points = null;
  #anyChosen = false;
  #markCount = 0;
  #asked = 0;

  // `moved` is called in each frame that is drawn, so that what lies above the points moves with them.
  constructor(element, moved) {
    this.element = element;
    this.moved = moved;
    this.centre = { x: 0, y: 0 };
    this.scale = 1;
    this.#start();
    element.addEventListener("webglcontextlost", (event) => event.preventDefault());
    element.addEventListener("webglcontextrestored", () => {
      this.#start();
      this.restored?.();
    });
    new ResizeObserver(() => this.#resize()).observe(element);
  }

  #start() {
    const gl = (this.#gl = this.element.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: true, powerPreference: "high-performance" }));
    if (!gl) throw new Error("this browser draws no WebGL 2");
    this.#plain = program(gl, PLAIN, PLAIN_FILL);
    this.#marked = program(gl, MARKED, MARKED_FILL);
    this.#buffers = Object.fromEntries(["place", "hue", "chosen", "markPlace", "markKind"].map((name) => [name, gl.createBuffer()]));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  #fill(name, data) {
    const gl = this.#gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.#buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
  }

  show(points) {
    this.#points = points;
    const place = new Float32Array(2 * points.count);
    const hue = new Uint8Array(points.count);
    for (let i = 0; i < points.count; i++) {
      place[2 * i] = points.x[i];
      place[2 * i + 1] = points.y[i];
      hue[i] = points.label[i] < points.labels.length ? points.label[i] % HUES.length : NO_LABEL;
    }
    this.#fill("place", place);
    this.#fill("hue", hue);
    this.choose(null);
    this.#resize();
  }

  // The points that stand out of the others, as a byte each, or null for all alike.
  choose(mask) {
    this.#anyChosen = mask !== null;
    this.#fill("chosen", mask ?? new Uint8Array(this.#points.count));
    this.draw();
  }

  // `[{ index, kind }]`, the last on top.
  mark(marks) {
    const points = this.#points;
    const place = new Float32Array(2 * marks.length);
    marks.forEach(({ index }, i) => place.set([points.x[index], points.y[index]], 2 * i));
    this.#fill("markPlace", place);
    this.#fill("markKind", Uint8Array.from(marks, (mark) => mark.kind));
    this.#markCount = marks.length;
    this.draw();
  }

  // The scale at which everything is in sight.
  fitting() {
    const { x0, x1, y0, y1 } = this.#points.bounds;
    const { clientWidth, clientHeight } = this.element;
    const margin = 24;
    return Math.max(1e-9, Math.min((clientWidth - 2 * margin) / (x1 - x0), (clientHeight - 2 * margin) / (y1 - y0)));
  }
  fit() {
    const { x0, x1, y0, y1 } = this.#points.bounds;
    this.centre = { x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
    this.scale = this.fitting();
    this.draw();
  }
  zoom(factor, at = { x: this.element.clientWidth / 2, y: this.element.clientHeight / 2 }) {
    const before = this.world(at);
    const least = this.fitting() / 2;
    this.scale = Math.max(least, Math.min(least * 20000, this.scale * factor));
    const after = this.world(at);
    this.centre.x += before.x - after.x;
    this.centre.y += before.y - after.y;
    this.draw();
  }
  pan(dx, dy) {
    this.centre.x -= dx / this.scale;
    this.centre.y += dy / this.scale;
    this.draw();
  }

  // Pixels of the element to places of the map, and back.
  world({ x, y }) {
    const { clientWidth, clientHeight } = this.element;
    return { x: this.centre.x + (x - clientWidth / 2) / this.scale, y: this.centre.y - (y - clientHeight / 2) / this.scale };
  }
  screen(x, y) {
    const { clientWidth, clientHeight } = this.element;
    return { x: (x - this.centre.x) * this.scale + clientWidth / 2, y: (this.centre.y - y) * this.scale + clientHeight / 2 };
  }

  #resize() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const width = Math.round(this.element.clientWidth * ratio);
    const height = Math.round(this.element.clientHeight * ratio);
    if (!width || !height) return;
    if (this.element.width !== width || this.element.height !== height) Object.assign(this.element, { width, height });
    this.resized?.();
    this.draw();
  }

  draw() {
    this.#asked ||= requestAnimationFrame(() => {
      this.#asked = 0;
      this.#frame();
    });
  }

  #frame() {
    const gl = this.#gl;
    const points = this.#points;
    const { clientWidth, clientHeight, width, height } = this.element;
    if (!points || !clientWidth || gl.isContextLost()) return;
    const ratio = width / clientWidth;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const scale = [(2 * this.scale) / clientWidth, (2 * this.scale) / clientHeight];

    const near = Math.sqrt(Math.max(1, this.scale / this.fitting()));
    const base = points.count > 300_000 ? 1.5 : points.count > 30_000 ? 2.5 : points.count > 5_000 ? 3.5 : 5;
    const size = Math.min(14, base * Math.min(near, 5)) * ratio;
    const attribute = (made, name, buffer, count, type, step = 0) => {
      const at = gl.getAttribLocation(made, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, this.#buffers[buffer]);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, count, type, false, step, 0);
    };
    const common = (made) => {
      gl.useProgram(made);
      gl.uniform2f(gl.getUniformLocation(made, "centre"), this.centre.x, this.centre.y);
      gl.uniform2fv(gl.getUniformLocation(made, "scale"), scale);
    };

    let made = this.#plain;
    common(made);
    const alpha = points.count > 100_000 ? 0.7 : 0.85;
    gl.uniform4fv(gl.getUniformLocation(made, "hues"), [...HUES, dark ? "#a3a29a" : "#64645e"].flatMap((hex) => rgba(hex, alpha)));
    gl.uniform4fv(gl.getUniformLocation(made, "faded"), dark ? rgba("#8c8b84", 0.35) : rgba("#9c9b93", 0.35));
    gl.uniform1f(gl.getUniformLocation(made, "size"), size);
    gl.uniform1f(gl.getUniformLocation(made, "round"), size > 3 ? 1 : 0);
    attribute(made, "place", "place", 2, gl.FLOAT);
    attribute(made, "hue", "hue", 1, gl.UNSIGNED_BYTE);
    attribute(made, "chosen", "chosen", 1, gl.UNSIGNED_BYTE);
    for (const pass of this.#anyChosen ? [1, 2] : [0]) {
      gl.uniform1f(gl.getUniformLocation(made, "pass"), pass);
      gl.drawArrays(gl.POINTS, 0, points.count);
    }

    if (this.#markCount) {
      made = this.#marked;
      common(made);
      const inks = dark ? ["#ffffff", "#3fbf98", "#ff8d5e", "#7dbdf0", "#ffffff"] : ["#1d1d1b", "#00775a", "#bf3f0a", "#005fa3", "#1d1d1b"];
      gl.uniform4fv(gl.getUniformLocation(made, "inks"), inks.flatMap((hex) => rgba(hex)));
      gl.uniform4fv(gl.getUniformLocation(made, "halo"), dark ? rgba("#171716") : rgba("#fdfdfb"));
      gl.uniform1f(gl.getUniformLocation(made, "size"), 15 * ratio);
      attribute(made, "place", "markPlace", 2, gl.FLOAT);
      attribute(made, "kind", "markKind", 1, gl.UNSIGNED_BYTE);
      gl.drawArrays(gl.POINTS, 0, this.#markCount);
    }
    this.moved();
  }
}
