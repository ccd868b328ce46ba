// Views of the list of jobs that this browser keeps: a name and an address.
import {at} from "./at.js";

const kept = "belfry-views", most = 12;

function load() {
  try { return JSON.parse(localStorage.getItem(kept)) ?? []; } catch { return []; }
}

export function views(place) {
  const tabs = place.querySelector("nav");
  const here = location.pathname + location.search;
  const show = () => {
    for (const old of tabs.querySelectorAll("[data-view]")) old.remove();
    for (const view of load()) {
      const tab = document.createElement("span"), link = document.createElement("a"), forget = document.createElement("button");
      tab.dataset.view = "";
      link.href = view.address.startsWith(at("/jobs")) ? view.address : at("/jobs");
      link.textContent = view.name;
      if (view.address === here) {
        link.setAttribute("aria-current", "page");
        tabs.querySelector(":scope > [aria-current]")?.removeAttribute("aria-current");
      }
      forget.type = "button"; forget.className = "forget"; forget.textContent = "×";
      forget.title = place.dataset.forget; forget.setAttribute("aria-label", place.dataset.forget + ": " + view.name);
      forget.onclick = () => { keep(load().filter(v => v.name !== view.name)); show(); };
      tab.append(link, forget);
      tabs.append(tab);
    }
  };
  const keep = list => localStorage.setItem(kept, JSON.stringify(list.slice(-most)));
  document.querySelector("[data-save-view]").addEventListener("submit", e => {
    e.preventDefault();
    const name = e.target.elements.view.value.trim();
    if (name) keep([...load().filter(v => v.name !== name), {name, address: here}]);
    e.target.closest("details").open = false;
    show();
  });
  show();
}
