// What every page has: "/" goes to the search, Escape closes the menu.
"use strict";
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("q").focus();
  }
  if (event.key === "Escape") document.querySelector(".menu").open = false;
});
