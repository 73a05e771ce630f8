"use strict";
// Values of a chart under the pointer, the finger or the arrow keys.
for (const plot of document.querySelectorAll(".plot")) {
  const chart = plot.closest(".chart");
  const [area, cursor, at] = [".area", ".cursor", ".at"].map((name) => chart.querySelector(name));
  const [step, epoch] = ["b", ".epoch"].map((name) => at.querySelector(name));
  const series = [...chart.querySelectorAll("[data-points]")].map((item) => ({
    value: item.querySelector(".value"),
    mean: item.querySelector(".mean"),
    at: new Map(item.dataset.points.split(";").map((point) => {
      const [step, epoch, value, mean] = point.split(",");
      return [+step, { epoch, value, mean }];
    })),
  }));
  const steps = [...new Set(series.flatMap((one) => [...one.at.keys()]))].sort((a, b) => a - b);
  const scale = "log" in plot.dataset ? Math.log : Number;
  const [from, to] = [scale(+plot.dataset.from), scale(+plot.dataset.to)];
  const place = (step) => (from === to ? 0.5 : (scale(step) - from) / (to - from));
  const rest = Math.max(0, steps.indexOf(+step.textContent));
  let now = rest;

  const show = (index) => {
    now = Math.min(Math.max(index, 0), steps.length - 1);
    const points = series.map((one) => one.at.get(steps[now]));
    step.textContent = steps[now];
    const known = points.find((point) => point?.epoch);
    epoch.textContent = known ? `, epoch ${known.epoch}` : "";
    series.forEach((one, i) => {
      one.value.textContent = points[i]?.value ?? "–";
      if (one.mean) one.mean.textContent = points[i]?.mean ?? "–";
    });
    cursor.style.left = `${100 * place(steps[now])}%`;
    cursor.hidden = false;
  };
  const leave = () => {
    show(rest);
    cursor.hidden = true;
  };
  const point = (event) => {
    const box = area.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    let best = 0;
    for (let i = 1; i < steps.length; i++) {
      if (Math.abs(place(steps[i]) - x) < Math.abs(place(steps[best]) - x)) best = i;
    }
    show(best);
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(steps.length / 20));
    const to = {
      ArrowLeft: now - 1, ArrowRight: now + 1, PageDown: now - far, PageUp: now + far,
      Home: 0, End: steps.length - 1,
    }[event.key];
    if (event.key === "Escape") leave();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}

// A map that can be moved and zoomed, with the picture and the class of the point under the pointer.
for (const atlas of document.querySelectorAll(".atlas")) {
  const bytes = (name) => Uint8Array.from(atob(atlas.dataset[name]), (letter) => letter.charCodeAt(0)).buffer;
  const places = new Uint16Array(bytes("places"));
  const classes = new Uint32Array(bytes("classes"));
  const names = JSON.parse(atlas.dataset.names);
  const count = places.length / 2;
  const sprite = atlas.querySelector(".sprite");
  const [tile, columns] = [+atlas.dataset.tile, +atlas.dataset.columns];
  const sky = atlas.querySelector(".sky");
  const canvas = sky.querySelector("canvas");
  const found = sky.querySelector(".found");
  const thumbnail = found.querySelector("canvas");
  const context = canvas.getContext("2d");
  const HUES = 10, PICTURED = 250, SIDE = 36, MARGIN = 0.03;
  const still = atlas.querySelector(".drawing");
  still.hidden = true;
  still.style.display = "none";
  sky.hidden = atlas.querySelector(".live").hidden = false;
  // The middle of the view and its size, in shares of the map's side; y runs upwards.
  let [x, y, side] = [0.5, 0.5, 1];
  const ends = [0, 0];
  for (let i = 0; i < count; i++) {
    ends[0] = Math.max(ends[0], places[2 * i]);
    ends[1] = Math.max(ends[1], places[2 * i + 1]);
  }
  const all = () => {
    const box = canvas.getBoundingClientRect();
    [x, y] = ends.map((end) => end / 131070);
    const needed = Math.max(ends[0] / box.width, ends[1] / box.height) / 65535;
    side = (needed || 1 / box.width) * Math.min(box.width, box.height) * (1 + 2 * MARGIN);
  };
  const scale = () => Math.min(canvas.clientWidth, canvas.clientHeight) / side;
  const at = (i) => [
    canvas.clientWidth / 2 + (places[2 * i] / 65535 - x) * scale(),
    canvas.clientHeight / 2 - (places[2 * i + 1] / 65535 - y) * scale(),
  ];
  const hue = (i) => classes.length ? classes[i] % HUES : 0;
  const picture = (to, i, left, top, size) => {
    const column = i % columns, row = Math.floor(i / columns);
    to.drawImage(sprite, column * tile, row * tile, tile, tile, left, top, size, size);
  };

  const draw = () => {
    const dense = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * dense;
    canvas.height = height * dense;
    context.scale(dense, dense);
    const style = getComputedStyle(document.documentElement);
    const hues = [...Array(HUES).keys()].map((h) => style.getPropertyValue(`--h${h}`));
    const shown = [];
    for (let i = 0; i < count; i++) {
      const [px, py] = at(i);
      if (px > -SIDE && py > -SIDE && px < width + SIDE && py < height + SIDE) shown.push(i);
    }
    if (sprite?.complete && sprite.naturalWidth && shown.length <= PICTURED) {
      context.lineWidth = 2;
      context.imageSmoothingEnabled = tile > SIDE;
      for (const i of shown) {
        const [px, py] = at(i).map((value) => value - SIDE / 2);
        picture(context, i, px, py, SIDE);
        context.strokeStyle = hues[hue(i)];
        context.strokeRect(px, py, SIDE, SIDE);
      }
      return;
    }
    const radius = Math.min(6, Math.max(1.2, 110 / Math.sqrt(Math.max(shown.length, 1))));
    for (const i of shown) {
      context.fillStyle = hues[hue(i)];
      context.beginPath();
      context.arc(...at(i), radius, 0, 7);
      context.fill();
    }
  };
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const zoom = (factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) => {
    const [dx, dy] = [(px - canvas.clientWidth / 2) / scale(), (canvas.clientHeight / 2 - py) / scale()];
    const before = side;
    side = Math.min(Math.max(side / factor, 1e-3), 4);
    x += dx * (1 - side / before);
    y += dy * (1 - side / before);
    redraw();
  };
  const find = (px, py) => {
    let [best, nearest] = [-1, 20 ** 2];
    for (let i = 0; i < count; i++) {
      const [ax, ay] = at(i);
      const far = (ax - px) ** 2 + (ay - py) ** 2;
      if (far < nearest) [best, nearest] = [i, far];
    }
    found.hidden = best < 0;
    if (best < 0) return;
    found.querySelector("p").textContent = classes.length ? names[classes[best]] : `row ${best}`;
    if (sprite?.complete && sprite.naturalWidth) {
      thumbnail.width = thumbnail.height = tile;
      picture(thumbnail.getContext("2d"), best, 0, 0, tile);
    }
    const [ax, ay] = at(best);
    found.style.left = `${Math.max(0, Math.min(ax + 14, canvas.clientWidth - found.offsetWidth))}px`;
    found.style.top = `${Math.max(0, Math.min(ay + 14, canvas.clientHeight - found.offsetHeight))}px`;
  };

  const held = new Map();
  const spread = () => {
    const [a, b] = [...held.values()];
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    canvas.setPointerCapture(event.pointerId);
    found.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return find(event.offsetX, event.offsetY);
    const before = spread();
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (held.size === 1) {
      x -= (event.offsetX - last[0]) / scale();
      y += (event.offsetY - last[1]) / scale();
      redraw();
    } else if (before > 0) {
      zoom(spread() / before);
    }
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      if (name === "pointerup" && event.pointerType !== "mouse") find(event.offsetX, event.offsetY);
    });
  }
  canvas.addEventListener("pointerleave", () => { found.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
  }, { passive: false });
  const reset = () => {
    all();
    redraw();
  };
  canvas.addEventListener("keydown", (event) => {
    const step = side / 10;
    const act = {
      "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(0.625), 0: reset,
      ArrowLeft: () => { x -= step; }, ArrowRight: () => { x += step; },
      ArrowUp: () => { y += step; }, ArrowDown: () => { y -= step; },
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
    redraw();
  });
  for (const button of sky.querySelectorAll("button")) {
    button.addEventListener("click", () => (+button.dataset.zoom ? zoom(+button.dataset.zoom) : reset()));
  }
  sprite?.addEventListener("load", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  all();
  new ResizeObserver(redraw).observe(canvas);
}
