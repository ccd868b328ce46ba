// Selecting rows of a list, or all that match its filter, and the bar that says how many.
import {words, say} from "./words.js";

export function bulk() {
  const bar = document.getElementById("bulkbar"), match = document.querySelector("[data-match]");
  const boxes = () => [...document.querySelectorAll("[data-list] tbody input[type=checkbox]")];
  const count = () => {
    const n = boxes().filter(b => b.checked).length;
    for (const b of boxes()) b.closest("tr").classList.toggle("on", b.checked);
    if (n < boxes().length) match.value = "";
    bar.hidden = n === 0;
    bar.querySelector("[data-count]").textContent = match.value ? words.matching : say("selected", {n});
    const all = document.querySelector("[data-all]");
    if (all) { all.checked = n > 0 && n === boxes().length; all.indeterminate = n > 0 && n < boxes().length; }
  };
  const check = on => { for (const b of boxes()) b.checked = on; };
  document.addEventListener("change", e => {
    if (e.target.matches("[data-all]")) check(e.target.checked);
    if (e.target.matches("[data-list] input")) count();
  });
  document.querySelector("[data-none]").addEventListener("click", () => { check(false); count(); });
  document.querySelector("[data-match-all]")?.addEventListener("click", () => { check(true); match.value = "1"; count(); });
  addEventListener("pageshow", count);
  count();
}
