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
