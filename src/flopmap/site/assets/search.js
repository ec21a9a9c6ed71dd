// Search over all records: every word must occur; a hit in the id or a name counts more than one in the summary.
"use strict";
(() => {
  const MOST = 60;
  const field = document.getElementById("q");
  const list = document.getElementById("results");
  const count = document.getElementById("count");
  const records = flopmapIndex.records.map(([kind, id, title, aliases, summary]) => ({
    kind, id, title, summary, name: `${id} ${title} ${aliases}`.toLowerCase(), all: summary.toLowerCase(),
  }));

  function score(record, words) {
    let sum = 0;
    for (const word of words) {
      if (record.id.toLowerCase() === word) sum += 20;
      else if (record.name.startsWith(word)) sum += 8;
      else if (record.name.includes(word)) sum += 4;
      else if (record.all.includes(word)) sum += 1;
      else return 0;
    }
    return record.kind === "sources" ? sum / 2 : sum;
  }

  function entry(record) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `${record.kind}/${record.id.split("/").map(encodeURIComponent).join("/")}.html`;
    link.textContent = record.title;
    const where = document.createElement("span");
    where.className = "title";
    where.textContent = `${flopmapIndex.kinds[record.kind]} / ${record.id}. ${record.summary}`;
    item.append(link, where);
    return item;
  }

  function search() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? records.map((record) => [score(record, words), record]).filter(([sum]) => sum) : [];
    found.sort((one, other) => other[0] - one[0]);
    list.replaceChildren(...found.slice(0, MOST).map(([, record]) => entry(record)));
    const shown = found.length > MOST ? `, the first ${MOST} shown` : "";
    count.textContent = words.length ? `${found.length} records${shown}` : "Type to search.";
  }

  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.addEventListener("input", search);
  field.form.addEventListener("submit", (event) => event.preventDefault());
  search();
})();
