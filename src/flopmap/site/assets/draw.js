// Numbers as people read them, and small pictures in SVG: no library, no style attributes.
"use strict";
(() => {
  const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const PREFIXED = ["byte", "byte/s", "FLOP", "FLOP/s", "op", "op/s", "byte/sequence"];

  // Four significant figures, without an exponent for what people read.
  flopmap.significant = (value) => {
    const number = Number(value.toPrecision(4));
    if (number === 0) return "0";
    const digits = 3 - Math.floor(Math.log10(Math.abs(number)));
    if (digits > 6) return number.toExponential(2);
    return number.toLocaleString("en-US", { minimumFractionDigits: Math.max(digits, 0), maximumFractionDigits: Math.max(digits, 0) });
  };
  flopmap.amount = (value, unit) => {
    const [scale, prefix] = PREFIXES.find(([least]) => Math.abs(Number(value.toPrecision(4))) >= least) ?? [1, ""];
    return `${flopmap.significant(value / scale)} ${prefix}${unit}`;
  };
  flopmap.written = (value, unit) => {
    if (PREFIXED.includes(unit)) return flopmap.amount(value, unit.replace("byte", "B"));
    return unit === "1" || unit === "a pure number" ? flopmap.significant(value) : `${flopmap.significant(value)} ${unit}`;
  };
  flopmap.seconds = (value) => {
    const [scale, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]].find(([least]) => Math.abs(value) >= least) ?? [1, "s"];
    return `${flopmap.significant(value / scale)} ${unit}`;
  };

  flopmap.svg = (name, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // A scale from values to places, by ratio or by difference.
  flopmap.scale = (low, high, from, to, log) => (value) => {
    const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return from + (to - from) * share;
  };

  flopmap.ticks = (low, high, log) => {
    if (log) {
      const powers = [];
      for (let power = Math.ceil(Math.log10(low) - 1e-9); power <= Math.log10(high) + 1e-9; power++) powers.push(10 ** power);
      const step = Math.ceil(powers.length / 7);
      return powers.filter((_, index) => index % step === 0);
    }
    const raw = (high - low) / 5;
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * [1, 2, 5, 10].find((each) => unit * each >= raw);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high * (1 + 1e-9); value += step) found.push(value);
    return found;
  };

  flopmap.curve = (points, { log, now, across, up, unit }) => {
    const { svg, scale, ticks } = flopmap;
    const [width, height, left, right, top, bottom] = [640, 300, 76, 16, 12, 36];
    if (points.length < 2) return document.createTextNode("No value over this range.");
    const ys = points.map(([, y]) => y);
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    const upLog = low > 0 && high / low > 30;
    if (!upLog) low = Math.min(low, 0);
    if (low === high) high = low + 1;
    const x = scale(points[0][0], points[points.length - 1][0], left, width - right, log);
    const y = scale(low, high, height - bottom, top, upLog);
    const spoken = `${up} over ${across}: from ${flopmap.written(ys[0], unit)} at ${points[0][0]} to ${flopmap.written(ys[ys.length - 1], unit)} at ${points[points.length - 1][0]}`;
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken });
    for (const tick of ticks(points[0][0], points[points.length - 1][0], log)) {
      drawn.append(svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: "grid" }), svg("text", { x: x(tick), y: height - bottom + 14, "text-anchor": "middle" }, flopmap.amount(tick, "")));
    }
    for (const tick of ticks(low, high, upLog)) {
      drawn.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }), svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, flopmap.amount(tick, "")));
    }
    drawn.append(svg("polyline", { points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), class: "line" }));
    if (now >= points[0][0] && now <= points[points.length - 1][0]) drawn.append(svg("line", { x1: x(now), x2: x(now), y1: top, y2: height - bottom, class: "now" }));
    drawn.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, across));
    return drawn;
  };
})();
