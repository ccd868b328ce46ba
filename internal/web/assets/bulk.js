// Selecting rows of a list, and the bar that says how many.
import {say} from "./words.js";

export function bulk() {
  const bar = document.getElementById("bulkbar");
  const boxes = () => [...document.querySelectorAll("[data-list] tbody input[type=checkbox]")];
  const count = () => {
    const n = boxes().filter(b => b.checked).length;
    for (const b of boxes()) b.closest("tr").classList.toggle("on", b.checked);
    bar.hidden = n === 0;
    bar.querySelector("[data-count]").textContent = say("selected", {n});
    const all = document.querySelector("[data-all]");
    if (all) { all.checked = n > 0 && n === boxes().length; all.indeterminate = n > 0 && n < boxes().length; }
  };
  document.addEventListener("change", e => {
    if (e.target.matches("[data-all]")) for (const b of boxes()) b.checked = e.target.checked;
    if (e.target.matches("[data-list] input")) count();
  });
  document.querySelector("[data-none]")?.addEventListener("click", () => { for (const b of boxes()) b.checked = false; count(); });
  count();
}
