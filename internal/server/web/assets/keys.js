// Keys. Single letters can be switched off in the settings, and are ignored in fields.
import {at} from "./at.js";
import {palette} from "./palette.js";
import {words, send} from "./words.js";

const pages = {o: "/", j: "/jobs", r: "/runs", t: "/timeline", f: "/flows", n: "/nodes", a: "/audit", s: "/settings"};
let leading = 0;

export function keys() {
  document.addEventListener("keydown", e => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); palette(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input,textarea,select,dialog[open]")) return;
    if (document.body.dataset.keys === "off") return;
    if (leading && Date.now() - leading < 1200) {
      leading = 0;
      if (pages[e.key]) { e.preventDefault(); location.href = at(pages[e.key]); }
      return;
    }
    const act = {
      "g": () => { leading = Date.now(); }, "/": () => document.querySelector("[data-search]")?.focus(),
      "?": () => document.getElementById("keys").showModal(), "j": () => move(1), "k": () => move(-1),
      "x": tick, " ": row() && !e.target.closest("button,summary") && tick, "Enter": () => row()?.dataset.href && (location.href = row().dataset.href),
      "f": () => document.querySelector("[data-output-follow]")?.click(), "w": () => document.querySelector("[data-output-wrap]")?.click(),
    }[e.key] ?? inRow(e.key) ?? (/^[a-z]$/.test(e.key) && document.querySelector(`[data-key="${e.key}"]`) && (() => document.querySelector(`[data-key="${e.key}"]`).click()));
    if (!act || e.key === "Enter" && !row()) return;
    if (e.key === "Enter" && e.target.closest("a,button,summary")) return;
    e.preventDefault();
    act();
  });
}

// What keys do is done to the row under the cursor, which has the focus, and else to the page.
const rows = "[data-list] tbody tr[data-href], #needs .nd";
const acts = {
  r: 'form[action$="/run"] button, a[href$="open=r"], form[action$="/retry"] button', e: 'a[href$="/edit"]',
  p: 'form[action$="/resume"] button, form[action$="/pause"] input[name="reason"]',
};
const row = () => document.activeElement?.closest(rows) ?? document.querySelector("tr.cursor, .nd.cursor");
const tick = () => row()?.querySelector("input[type=checkbox], summary.dots")?.click();

function inRow(key) {
  const what = acts[key] && row()?.querySelector(acts[key]);
  if (!what) return ofRun(key);
  return () => {
    if (what.name !== "reason") return what.click();
    what.closest("details").open = true;
    what.focus();
  };
}

// The row of a run has no buttons: a key does what its page does, or leads to what the page of its job does.
function ofRun(key) {
  const run = row()?.dataset.href, job = row()?.querySelector('a[href*="/jobs/"]')?.href;
  if (!run?.includes("/runs/")) return;
  if (key === "r" && words["run.retry"]) return () => send(run + "/retry");
  if (job && key === "p" && words["job.pause"]) return () => { location.href = job + "?open=p"; };
  if (job && key === "e" && words["job.edit"]) return () => { location.href = job + "/edit"; };
}

function move(by) {
  const list = [...document.querySelectorAll(rows)].filter(r => r.checkVisibility());
  if (!list.length) return;
  const at = list.indexOf(row());
  const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? (by > 0 ? 0 : list.length - 1) : at + by))];
  document.querySelector("tr.cursor, .nd.cursor")?.classList.remove("cursor");
  next.classList.add("cursor");
  (next.querySelector(".acts > a") ?? [...next.querySelectorAll("a")].find(a => a.getAttribute("href") === next.dataset.href) ?? next.querySelector("a"))?.focus({preventScroll: true, focusVisible: true});
  next.scrollIntoView({block: "nearest"});
}
