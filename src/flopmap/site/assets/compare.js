// Two parts or two models side by side; both choices are in the address.
"use strict";
(() => {
  const form = document.getElementById("compare");
  const place = document.getElementById("comparison");
  const cell = (name, text, scope) => {
    const element = document.createElement(name);
    element.textContent = text;
    if (scope) element.scope = scope;
    return element;
  };
  const line = (...cells) => {
    const row = document.createElement("tr");
    row.append(...cells);
    return row;
  };

  function fill() {
    const ids = Object.keys(flopmapCompare[form.kind.value]);
    for (const [index, field] of [form.a, form.b].entries()) {
      field.replaceChildren(...ids.map((id) => new Option(id, id)));
      field.selectedIndex = Math.min(index, ids.length - 1);
    }
  }

  function draw() {
    const all = flopmapCompare[form.kind.value];
    const [one, other] = [all[form.a.value], all[form.b.value]];
    const table = document.createElement("table");
    const head = document.createElement("thead");
    head.append(line(...["figure", form.a.value, form.b.value, "ratio"].map((text) => cell("th", text, "col"))));
    const body = document.createElement("tbody");
    for (const name of new Set([...Object.keys(one), ...Object.keys(other)])) {
      const [a, b] = [one[name] ?? ["-"], other[name] ?? ["-"]];
      const ratio = a[1] && b[1] ? (b[1] / a[1]).toPrecision(3) : a[0] === b[0] ? "same" : "";
      body.append(line(cell("th", name, "row"), cell("td", a[0]), cell("td", b[0]), cell("td", ratio)));
    }
    table.append(head, body);
    const frame = document.createElement("div");
    frame.className = "wide";
    frame.append(table);
    place.replaceChildren(frame);
    history.replaceState(null, "", "#" + new URLSearchParams(new FormData(form)));
  }

  const said = new URLSearchParams(location.hash.slice(1));
  if (said.get("kind") in flopmapCompare) form.kind.value = said.get("kind");
  fill();
  for (const name of ["a", "b"]) if (said.get(name) in flopmapCompare[form.kind.value]) form[name].value = said.get(name);
  form.addEventListener("input", ({ target }) => {
    if (target === form.kind) fill();
    draw();
  });
  draw();
})();
