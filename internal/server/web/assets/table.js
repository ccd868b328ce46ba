// A chart as a table of what its marks say, for those who would rather read.
import {words} from "./words.js";

export function tables(charts) {
  for (const chart of charts) {
    const place = chart.parentElement, header = place.parentElement.querySelector(":scope > header");
    if (!header || !chart.querySelector("title")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn s quiet";
    button.textContent = words.table;
    button.setAttribute("aria-pressed", "false");
    header.append(button);
    let box = null;
    const show = () => {
      const rows = new Map([...place.querySelectorAll("svg title")].map(t => [t.textContent, t.textContent.split(/: (.*)/s)]));
      box.firstElementChild.replaceChildren(...[...rows.values()].map(([name, text]) => {
        const row = document.createElement("tr");
        for (const [kind, part] of [["th", name], ["td", text ?? ""]]) {
          const cell = document.createElement(kind);
          if (kind === "th") cell.scope = "row";
          cell.textContent = part;
          row.append(cell);
        }
        return row;
      }));
    };
    button.addEventListener("click", () => {
      if (box) { box.remove(); box = null; } else {
        box = document.createElement("div");
        box.className = "marks";
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", place.getAttribute("aria-label") ?? chart.getAttribute("aria-label"));
        const table = document.createElement("table");
        table.className = "tight";
        box.append(table);
        show();
        place.after(box);
      }
      button.setAttribute("aria-pressed", String(box !== null));
    });
    document.addEventListener("belfry:fresh", () => { if (box) show(); });
  }
}
