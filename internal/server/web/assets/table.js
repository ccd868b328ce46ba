// A chart as a table of what its marks say, for those who would rather read.
import {words, make} from "./words.js";

export function tables(charts) {
  for (const chart of charts) {
    const place = chart.parentElement, header = place.parentElement.querySelector(":scope > header");
    if (!header || !chart.querySelector("title")) continue;
    const button = make("button", {type: "button", className: "btn s quiet", ariaPressed: false}, words.table);
    header.append(button);
    let box = null;
    const show = () => {
      const rows = new Map([...place.querySelectorAll("svg title")].map(t => [t.textContent, t.textContent.split(/: (.*)/s)]));
      box.firstElementChild.replaceChildren(...[...rows.values()].map(([name, text]) => make("tr", {}, make("th", {scope: "row"}, name), make("td", {}, text ?? ""))));
    };
    button.addEventListener("click", () => {
      if (box) { box.remove(); box = null; } else {
        box = make("div", {className: "marks", tabIndex: 0, role: "region", ariaLabel: place.ariaLabel ?? chart.ariaLabel}, make("table", {className: "tight"}));
        show();
        place.after(box);
      }
      button.ariaPressed = box !== null;
    });
    document.addEventListener("belfry:fresh", () => { if (box) show(); });
  }
}
