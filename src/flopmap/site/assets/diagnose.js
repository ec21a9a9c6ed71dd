// Paste or drop what a tool printed; the server reads it, keeps nothing, and says what binds.
"use strict";
(() => {
  const form = document.getElementById("paste");
  const verdict = document.getElementById("verdict");
  const said = document.getElementById("said");
  const element = (name, text, ...children) => {
    const made = document.createElement(name);
    if (text !== null) made.textContent = text;
    made.append(...children);
    return made;
  };

  async function take(file) {
    if (file) form.text.value = await file.text();
  }

  async function ask() {
    const given = new URLSearchParams({ draw: "1" });
    for (const name of ["model", "on", "batch_size", "context_len"]) if (form[name].value) given.set(name, form[name].value);
    verdict.textContent = "Reading.";
    said.replaceChildren();
    let data;
    let right = false;
    try {
      const answer = await fetch(`api/diagnose?${given}`, { method: "POST", body: form.text.value, headers: { "Content-Type": "text/plain" } });
      right = answer.ok;
      data = await answer.json();
    } catch {
      data = { error: "The server does not answer." };
    }
    verdict.classList.toggle("wrong", !right);
    verdict.textContent = right ? data.headline : data.error;
    if (!right) return;
    const folded = (title, text) => {
      const pre = element("pre", text);
      pre.tabIndex = 0;
      return element("details", null, element("summary", title), pre);
    };
    said.replaceChildren(...data.lines.map((line) => element("p", line.trim())), ...data.runs.flatMap(toWhy), folded("Markdown, for an issue", data.markdown), folded("JSON", JSON.stringify(data.runs, null, 1)));
  }

  // each verdict can be played with on the other page
  function toWhy(run) {
    return run.verdicts.filter((each) => each.measured_seconds).map((each) => {
      const { model, part, engine, phase, batch_size, context_len, input_len, enforce_eager, quantization, kv_cache_dtype, dtype } = each.scenario;
      const state = new URLSearchParams();
      const fields = { model, on: part, engine, phase, batch_size, dtype, quantization, kv_cache_dtype, enforce_eager: enforce_eager || "", ...(phase === "decode" ? { context_len } : { input_len }) };
      for (const [name, value] of Object.entries(fields)) if (value) state.set(name, value);
      state.set("step_time", `${each.measured_seconds}s`);
      const link = element("a", `Change it: ${each.figure}`);
      link.href = `why?${state}`;
      return element("p", null, link);
    });
  }

  form.file.addEventListener("change", () => take(form.file.files[0]));
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
})();
