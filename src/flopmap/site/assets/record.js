// A record's formulas alive: sliders, values, a plot. The state is in the address, so it can be linked to.
"use strict";
(() => {
  const STEPS = 1000;
  const POINTS = 81;
  const form = document.getElementById("symbols");
  const numbers = [...form.querySelectorAll("input[type=number]")];
  const choices = [...form.querySelectorAll("select")];
  const outputs = [...document.querySelectorAll("output[data-formula]")];
  const frame = document.getElementById("plot");
  const plotted = document.querySelectorAll(".plot select");
  const sliderOf = (number) => form.querySelector(`input[data-of="${number.name}"]`);
  const range = (number) => ({ low: Number(number.dataset.low), high: Number(number.dataset.high), log: "log" in number.dataset, whole: "whole" in number.dataset });

  function at(number, share) {
    const { low, high, log, whole } = range(number);
    const value = log ? low * (high / low) ** share : low + (high - low) * share;
    return whole ? Math.round(value) : Number(value.toPrecision(4));
  }

  function place(number) {
    const { low, high, log } = range(number);
    const value = Number(number.value);
    sliderOf(number).value = log ? (Math.log(value / low) / Math.log(high / low)) * STEPS : value;
  }

  const known = () => Object.fromEntries(numbers.map((number) => [number.name, number.value === "" ? NaN : Number(number.value)]));
  const chosen = () => Object.fromEntries(choices.map((choice) => [choice.dataset.convention, choice.value]));

  function redraw() {
    const found = flopmap.evaluate(flopmap.record, known(), chosen());
    for (const output of outputs) {
      const value = found[output.dataset.formula];
      output.textContent = Number.isFinite(value) ? flopmap.written(value, output.dataset.unit) : "no value";
      if (Number.isFinite(value)) output.dataset.value = String(value);
      else delete output.dataset.value;
    }
    if (frame) plot();
  }

  function plot() {
    const [up, across] = [...plotted].map((select) => select.value);
    const number = numbers.find((each) => each.name === across);
    const symbols = known();
    const points = [];
    for (let step = 0; step < POINTS; step++) {
      const x = at(number, step / (POINTS - 1));
      if (points.length && points[points.length - 1][0] === x) continue;
      const y = flopmap.evaluate(flopmap.record, { ...symbols, [across]: x }, chosen())[up];
      if (Number.isFinite(y)) points.push([x, y]);
    }
    const unit = outputs.find((output) => output.dataset.formula === up).dataset.unit;
    frame.replaceChildren(flopmap.curve(points, { log: range(number).log, now: symbols[across], across, up, unit }));
  }

  function keep() {
    const state = new URLSearchParams();
    for (const field of [...numbers, ...choices, ...plotted]) {
      const first = field.defaultValue ?? [...field.options].find((option) => option.defaultSelected)?.value ?? field.options[0].value;
      if (field.value !== first) state.set(field.name, field.value);
    }
    history.replaceState(null, "", state.size ? "#" + state : location.pathname + location.search);
  }

  function read() {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const field of [...numbers, ...choices, ...plotted]) if (state.has(field.name)) field.value = state.get(field.name);
    numbers.forEach(place);
    redraw();
  }

  form.addEventListener("input", ({ target }) => {
    if (target.dataset.of) {
      const number = numbers.find((each) => each.name === target.dataset.of);
      number.value = range(number).log ? at(number, target.value / STEPS) : target.value;
    } else if (target.type === "number") place(target);
    redraw();
    keep();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const select of plotted) select.addEventListener("input", () => (redraw(), keep()));
  addEventListener("hashchange", read);
  read();
})();
