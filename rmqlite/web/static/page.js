// htmx swaps the live part of a page; this script does the rest.  Without scripts all else works.
"use strict";

const lost = document.getElementById("lost");
let focused = null;
let opened = [];

// On a narrow screen the list of pages is wider than the screen.
document.querySelector("header [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

function isReading() {
  const selection = document.getSelection();
  return document.hidden || (selection !== null && !selection.isCollapsed);
}

// A selector that finds the same element before and after a swap.
function nameOf(element) {
  return element.id ? "#" + CSS.escape(element.id)
    : element.getAttribute("href") ? "a[href=" + JSON.stringify(element.getAttribute("href")) + "]" : null;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  // Swap nothing while somebody selects text, or while the page is hidden.
  if (isReading()) event.preventDefault();
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const live = event.detail.target;
  const active = document.activeElement;
  focused = live && live.contains(active) ? nameOf(active) : null;
  opened = live ? [...live.querySelectorAll("details[open]")].map((each) => each.id) : [];
});
document.addEventListener("htmx:afterSettle", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused !== null) document.querySelector("#live " + focused)?.focus({ preventScroll: true });
});
for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(name, () => { lost.hidden = false; });
}
document.addEventListener("htmx:afterOnLoad", (event) => {
  if (event.detail.xhr.status < 400) lost.hidden = true;
});
document.addEventListener("change", (event) => {
  if (!event.target.matches("input[data-all]")) return;
  for (const each of event.target.form.querySelectorAll(".tick input")) each.checked = event.target.checked;
});
