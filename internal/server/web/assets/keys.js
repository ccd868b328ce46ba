// Keys. Single letters can be switched off in the settings, and are ignored in fields.
import {palette} from "./palette.js";

const pages = {o: "/", j: "/jobs", r: "/runs", t: "/timeline", f: "/flows", n: "/nodes", a: "/audit", s: "/settings"};
let leading = 0;

export function keys() {
  document.addEventListener("keydown", e => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); palette(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input,textarea,select,dialog[open]")) return;
    if (document.body.dataset.keys === "off") return;
    if (leading && Date.now() - leading < 1200) {
      leading = 0;
      if (pages[e.key]) { e.preventDefault(); location.href = pages[e.key]; }
      return;
    }
    const act = {
      "g": () => { leading = Date.now(); }, "/": () => document.querySelector("[data-search]")?.focus(),
      "?": () => document.getElementById("keys").showModal(), "j": () => move(1), "k": () => move(-1),
      "x": () => row()?.querySelector("input[type=checkbox]")?.click(), "Enter": () => row() && (location.href = row().dataset.href),
      "f": () => document.querySelector("[data-output-follow]")?.click(), "w": () => document.querySelector("[data-output-wrap]")?.click(),
    }[e.key] ?? (/^[a-z]$/.test(e.key) && document.querySelector(`[data-key="${e.key}"]`) && (() => document.querySelector(`[data-key="${e.key}"]`).click()));
    if (!act || e.key === "Enter" && !row()) return;
    if (e.key === "Enter" && e.target.closest("a,button,summary")) return;
    e.preventDefault();
    act();
  });
}

const row = () => document.querySelector("[data-list] tr.cursor");

function move(by) {
  const rows = [...document.querySelectorAll("[data-list] tbody tr[data-href]")];
  if (!rows.length) return;
  const at = rows.indexOf(row());
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  row()?.classList.remove("cursor");
  next.classList.add("cursor");
  next.scrollIntoView({block: "nearest"});
}
