// The workbench: every change asks the server and redraws; the scenario is the address, so back, forward and links work.
"use strict";
(() => {
  const { svg, scale, ticks, amount, significant, seconds } = flopmap;
  const form = document.getElementById("ask");
  const verdict = document.getElementById("verdict");
  const said = document.getElementById("said");
  const place = document.getElementById("answer");
  const percent = (share) => `${(share * 100).toFixed(Math.abs(share) >= 0.1 ? 0 : 1)}%`;
  const words = (name) => name.replaceAll("_", " ");
  let asked = null;

  function query() {
    const given = new URLSearchParams();
    for (const field of form.elements) {
      if (field.name && field.value && field.name !== "measured" && field.name !== "value") given.set(field.name, field.value);
    }
    if (form.measured.value && form.value.value) given.set(form.measured.value, form.value.value);
    return given;
  }

  function read() {
    const given = new URLSearchParams(location.search);
    if (!given.size) return;
    for (const field of form.elements) if (field.name) field.value = given.get(field.name) ?? "";
    const measured = [...form.measured.options].map((option) => option.value).find((name) => name && given.has(name));
    form.measured.value = measured ?? "";
    form.value.value = measured ? given.get(measured) : "";
  }

  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const given = query();
    document.getElementById("json").href = `api/why?${given}`;
    given.set("draw", "1");
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`api/why?${given}`, { signal: asked.signal });
      const data = await answer.json();
      if (answer.ok) show(data);
      else refuse(data.error);
    } catch (error) {
      if (error.name !== "AbortError") refuse("The server does not answer.");
    }
  }

  function refuse(why) {
    verdict.textContent = why;
    verdict.classList.add("wrong");
    delete verdict.dataset.floor;
    said.replaceChildren();
    place.replaceChildren();
    place.setAttribute("aria-busy", "false");
  }

  const element = (name, text, attributes = {}, ...children) => {
    const made = document.createElement(name);
    if (text !== null) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  function table(title, head, rows) {
    if (!rows.length) return [];
    const cell = (name, value, column) => {
      const made = value instanceof Node ? element(name, null, {}, value) : element(name, value);
      if (column && /^[-+]?[\d.,]+\S*( \S+)?$/.test(made.textContent)) made.className = "n";
      return made;
    };
    const whole = element("table", null, {},
      element("thead", null, {}, element("tr", null, {}, ...head.map((text, column) => cell("th", text, column)))),
      element("tbody", null, {}, ...rows.map((row) => element("tr", null, {}, ...row.map((value, column) => cell("td", value, column))))));
    return [element("section", null, {}, element("h2", title), element("div", null, { class: "wide", tabindex: "0", role: "region", "aria-label": title }, whole))];
  }

  // ops of a class as one, the longest first
  function classes(ops) {
    const found = new Map();
    for (const op of ops) {
      const sum = found.get(op.class) ?? { name: op.class, seconds: 0, flop: 0, bytes: 0, share: 0, bounds: {}, formula: op.formula, source: op.source };
      sum.seconds += op.floor_seconds;
      sum.flop += op.matrix_flop;
      sum.bytes += op.device_bytes;
      sum.share += op.share;
      sum.bounds[op.bound_by] = (sum.bounds[op.bound_by] ?? 0) + op.floor_seconds;
      found.set(op.class, sum);
    }
    const ranked = [...found.values()].filter((each) => each.seconds > 0).sort((one, other) => other.seconds - one.seconds);
    for (const each of ranked) each.bound = words(Object.entries(each.bounds).sort((one, other) => other[1] - one[1])[0][0]);
    return ranked;
  }

  const toClass = (name) => element("a", name, { href: `flops/${name}.html` });
  const hover = (each) => svg("title", {}, `${each.name}: ${seconds(each.seconds)}, ${percent(each.share)}, ${each.bound}\n${each.formula}\nsource: ${each.source}`);

  function roofline(all, { bandwidth, matrix }) {
    const [width, height, left, right, top, bottom] = [640, 340, 88, 60, 12, 36];
    const peak = Math.max(...Object.values(matrix));
    const points = all.filter((each) => each.flop > 0 && each.bytes > 0);
    const intensities = points.map((each) => each.flop / each.bytes);
    const [low, high] = [Math.min(0.1, ...intensities), Math.max(1e4, ...intensities)];
    const rates = points.map((each) => each.flop / each.seconds);
    const floor = Math.min(low * bandwidth, ...rates);
    const x = scale(low, high, left, width - right, true);
    const y = scale(floor, peak * 2, height - bottom, top, true);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Roofline: ${points.map((each) => `${each.name} at ${significant(each.flop / each.bytes)} FLOP a byte`).join(", ")}` });
    for (const tick of ticks(low, high, true)) drawn.append(svg("line", { x1: x(tick), x2: x(tick), y1: top, y2: height - bottom, class: "grid" }), svg("text", { x: x(tick), y: height - bottom + 14, "text-anchor": "middle" }, significant(tick)));
    for (const tick of ticks(floor, peak * 2, true)) drawn.append(svg("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }), svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, amount(tick, "FLOP/s")));
    for (const [dtype, rate] of Object.entries(matrix)) {
      const ridge = rate / bandwidth;
      drawn.append(svg("polyline", { class: "limit", points: `${x(floor / bandwidth)},${y(floor)} ${x(ridge)},${y(rate)} ${x(high)},${y(rate)}` }, svg("title", {}, `${dtype}: ${amount(rate, "FLOP/s")}, ridge ${significant(ridge)} FLOP a byte`)), svg("text", { x: width - right + 4, y: y(rate) + 4 }, dtype));
    }
    const labelled = [];
    for (const each of points) {
      const where = { cx: x(each.flop / each.bytes), cy: y(each.flop / each.seconds) };
      const radius = Math.max(2, 26 * Math.sqrt(each.share));
      drawn.append(svg("circle", { ...where, r: radius, class: "point", "data-class": each.name }, hover(each)));
      if (each.share <= 0.03) continue;
      const label = { x: where.cx + radius + 3, y: where.cy + 4 };
      while (labelled.some((other) => Math.abs(other.y - label.y) < 12 && Math.abs(other.x - label.x) < 110)) label.y += 12;
      labelled.push(label);
      drawn.append(svg("text", label, each.name));
    }
    drawn.append(svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "FLOP a byte; area is the share of the step"));
    return drawn;
  }

  function waterfall(all, data) {
    const shown = all.slice(0, 8);
    const rest = all.slice(8).reduce((sum, each) => sum + each.seconds, 0);
    if (rest) shown.push({ name: `${all.length - 8} more`, seconds: rest, share: rest / data.floor_seconds.operation, bound: "", formula: "", source: "" });
    const totals = [["device floor", data.floor_seconds.device, "floor"], ["operation floor", data.floor_seconds.operation, "floor"], ["engine floor", data.floor_seconds.engine, "floor"]];
    if (data.estimate_seconds.value) totals.push(["estimate", data.estimate_seconds.value, "floor"]);
    if (data.measured_seconds) totals.push(["measured", data.measured_seconds, "measured"]);
    const longest = Math.max(...totals.map(([, time]) => time));
    const [width, row, left, right] = [640, 22, 150, 74];
    const x = scale(0, longest, left, width - right, false);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${row * (shown.length + totals.length) + 4}`, role: "img", "aria-label": `Step by class: ${shown.map((each) => `${each.name} ${seconds(each.seconds)}`).join(", ")}; ${totals.map(([name, time]) => `${name} ${seconds(time)}`).join(", ")}` });
    let from = 0;
    let line = 0;
    const bar = (name, start, time, kind, title) => {
      const y = line++ * row + 2;
      drawn.append(svg("text", { x: left - 6, y: y + 14, "text-anchor": "end" }, name), svg("rect", { x: x(start), y, width: Math.max(1, x(start + time) - x(start)), height: row - 5, class: `bar ${kind}` }, title), svg("text", { x: x(start + time) + 4, y: y + 14 }, seconds(time)));
    };
    for (const each of shown) {
      bar(each.name, from, each.seconds, "", hover(each));
      from += each.seconds;
    }
    for (const [name, time, kind] of totals) bar(name, 0, time, kind, svg("title", {}, `${name}: ${seconds(time)}`));
    return drawn;
  }

  const figure = (title, drawn) => element("section", null, {}, element("h2", title), element("figure", null, {}, drawn));

  function show(data) {
    verdict.textContent = data.drawing.headline;
    verdict.classList.remove("wrong");
    verdict.dataset.floor = String(data.floor_seconds.operation);
    verdict.dataset.over = String(data.measured_over_floor);
    said.replaceChildren(...data.drawing.paragraphs.map((line) => element("p", line)));
    const all = classes(data.ops);
    const governing = data.doubling.filter((each) => Math.max(data.elasticity[each.property], each.gain) >= 0.0005);
    place.replaceChildren(
      element("div", null, { class: "columns" }, figure("Roofline", roofline(all, data.drawing)), figure("Step by class", waterfall(all, data))),
      ...table("What would change it", ["lever", "step", "time", "sequences that fit", "mind"], data.levers.map((each) => [element("a", each.title, { href: `levers/${each.id}.html` }), seconds(each.step_seconds), `${each.gain > 0 ? "-" : "+"}${percent(Math.abs(each.gain))}`, each.max_sequences ?? "", [...each.gates, ...each.traps].join("; ")])),
      ...table("What governs it", ["property", "governs", "doubled", "bound flips at"], governing.map((each) => [words(each.property), percent(data.elasticity[each.property]), seconds(each.step_seconds), each.flips_at ? `${significant(each.flips_at)}x, then ${words(each.flips_to)}` : ""])),
      ...table("Where the floor goes", ["class", "time", "share", "matrix", "bytes", "bound by"], all.map((each) => [toClass(each.name), seconds(each.seconds), percent(each.share), amount(each.flop, "FLOP"), amount(each.bytes, "B"), each.bound])),
      ...table("Beware", ["trap", "remedy"], data.traps.map((each) => [element("a", each.title, { href: `traps/${each.id}.html` }), each.remedy])),
      element("section", null, {}, element("h2", "Assumed and not counted"), element("ul", null, {}, ...data.drawing.footnotes.map((note) => element("li", note)))),
    );
    place.setAttribute("aria-busy", "false");
  }

  const address = () => `why?${query()}`;
  form.addEventListener("input", () => {
    history.replaceState(null, "", address());
    ask();
  });
  // a finished change is a step back of its own; the one before it was replaced while it was typed
  let settled = address();
  form.addEventListener("change", () => {
    if (address() === settled) return;
    history.replaceState(null, "", settled);
    settled = address();
    history.pushState(null, "", settled);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("popstate", () => {
    read();
    settled = address();
    ask();
  });
  read();
  settled = address();
  history.replaceState(null, "", settled);
  ask();
})();
