// What every page has: countdowns, menus, keys, copying, and the parts of pages that need more.
import {keys} from "./keys.js";
import {live} from "./live.js";
import {palette} from "./palette.js";
import {words, say, coarse, make} from "./words.js";

document.documentElement.classList.add("script");

// Countdowns are right each second, as long as the page is seen.
const frozen = new URLSearchParams(location.search).has("frozen");
export function tick(root = document) {
  for (const t of root.querySelectorAll("time[data-relative]")) {
    const left = Date.parse(t.dateTime) - Date.now();
    const text = left >= 0 ? say("in", {d: coarse(left)}) : say("ago", {d: coarse(-left)});
    if (t.textContent !== text) t.textContent = text;
  }
  for (const t of root.querySelectorAll("time[data-since]")) t.textContent = coarse(Date.now() - Date.parse(t.dateTime));
}
if (!frozen) setInterval(() => { if (!document.hidden && !document.body.classList.contains("stale")) tick(); }, 1000);

// One menu is open at a time; Escape and a click elsewhere close it.
const menus = () => document.querySelectorAll("details.menu[open]");
document.addEventListener("click", e => { for (const m of menus()) if (!m.contains(e.target)) m.open = false; });
document.addEventListener("keydown", e => {
  if (e.key !== "Escape") return;
  for (const m of menus()) { m.open = false; m.querySelector("summary").focus(); }
});
const enter = menu => menu?.querySelector(".pop:not(:has(.ask)) :is(input:not([type=hidden]), select)")?.focus();
document.addEventListener("toggle", e => { if (e.target.matches?.("details.menu") && e.target.open) enter(e.target); }, true);
enter(document.querySelector("main details.menu[open]"));

document.addEventListener("click", async e => {
  const copy = e.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy || document.getElementById(copy.dataset.from).value);
    copy.title = words.copied;
    copy.classList.add("done");
  }
  const open = e.target.closest("[data-open=palette]");
  if (open) palette();
});

// A form that acts is sent once, and says so to the server as well.
document.addEventListener("submit", e => {
  const form = e.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) { e.preventDefault(); return; }
  form.dataset.sent = "1";
  form.append(make("input", {type: "hidden", name: "once", value: crypto.randomUUID?.() ?? String(Math.random())}));
  if (form.matches("[data-logout]")) new BroadcastChannel("belfry").postMessage("ended");
});
addEventListener("pageshow", () => { for (const f of document.querySelectorAll("form[data-sent]")) delete f.dataset.sent; });

if (document.body.dataset.login !== undefined) {
  const form = document.querySelector("form");
  form.elements.zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  document.getElementById("insecure").hidden = isSecureContext;
  const code = location.hash.slice(1);
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    form.elements.code.value = code;
    form.elements.token.required = false;
    form.submit();
  }
} else {
  keys();
  live();
  if (document.querySelector("[data-list] input[type=checkbox]")) import("./bulk.js").then(m => m.bulk());
  const saved = document.querySelector("[data-views]");
  if (saved) import("./views.js").then(m => m.views(saved));
  const charts = document.querySelectorAll(".panel > .body > svg.viz");
  if (charts.length) import("./table.js").then(m => m.tables(charts));
  // A chart that is wider than the page begins with what is new.
  for (const place of document.querySelectorAll(".scroll-x[data-latest]")) {
    const now = place.querySelector("svg .now"), box = place.getBoundingClientRect();
    place.scrollLeft = now ? now.getBoundingClientRect().left - box.left - box.width / 2 : place.scrollWidth;
  }
  for (const chart of document.querySelectorAll("[data-zoom]")) import("./zoom.js").then(m => m.zoom(chart));
  for (const place of document.querySelectorAll("[data-graph]")) import("./graph.js").then(m => m.graph(place));
  const output = document.querySelector("[data-output]");
  if (output) import("./output.js").then(m => m.output(output));
  const texts = document.querySelectorAll(".numbered");
  if (texts.length) import("./paint.js").then(m => m.documents(texts));
  if (document.querySelector("[data-edit]")) import("./edit.js").then(m => m.edit());
  if (document.querySelector("[data-first]")) import("./edit.js").then(m => m.first());
}
