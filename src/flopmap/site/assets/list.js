// Filters of a list: every choice is in the address, so a filtered list can be linked to.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const rows = [...document.querySelectorAll(".list tbody tr")];
  const count = document.getElementById("count");

  function fits(row, name, wanted) {
    if (!wanted) return true;
    if (name === "words") return wanted.toLowerCase().split(/\s+/).every((word) => row.dataset.words.includes(word));
    if (name === "confidence") return Number(row.dataset.confidence) >= Number(wanted);
    return (row.dataset[name] ?? "").split("|").includes(wanted);
  }

  function apply() {
    const wanted = [...new FormData(form)].filter(([, value]) => value);
    for (const row of rows) row.hidden = !wanted.every(([name, value]) => fits(row, name, value));
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} records`;
    history.replaceState(null, "", "#" + new URLSearchParams(wanted));
  }

  function read() {
    const said = new URLSearchParams(location.hash.slice(1));
    for (const field of form.elements) if (field.name) field.value = said.get(field.name) ?? "";
    apply();
  }

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", read);
  read();
})();
