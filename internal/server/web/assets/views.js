// Views of the list of jobs that this browser keeps: a name and an address.
import {at} from "./at.js";
import {make} from "./words.js";

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
      const link = make("a", {href: view.address.startsWith(at("/jobs")) ? view.address : at("/jobs")}, view.name);
      if (view.address === here) {
        link.setAttribute("aria-current", "page");
        tabs.querySelector(":scope > [aria-current]")?.removeAttribute("aria-current");
      }
      const {forget} = place.dataset, tab = make("span", {}, link, make("button", {
        type: "button", className: "forget", title: forget, ariaLabel: `${forget}: ${view.name}`, onclick: () => { keep(load().filter(v => v.name !== view.name)); show(); },
      }, "×"));
      tab.dataset.view = "";
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
