// Keeps a page current: one stream of events, and the parts of the page that are marked as
// live are read again when something happened. HTML of our own pages is the only text that
// becomes elements, and it does so here.
import {tick} from "./belfry.js";
import {at} from "./at.js";
import {say} from "./words.js";

const policy = window.trustedTypes?.createPolicy("belfry", {createHTML: html => html, createScriptURL: address => address}) ?? {createHTML: html => html, createScriptURL: address => address};
const alive = 20000;   // a tab tells the shared stream so often that it is there
const silence = 25000; // the server says something each 15 s
const between = 600;  // from one read to the next in the long run: what happened is on the page within a second
const quiet = 60000;  // a page that was not used for so long reads 1 kB a second at most
const rest = 10000;   // and without an event six times a minute at most
const packed = 4;     // letters of a page in a byte of its compressed answer, at least
const patience = 30000; // a click that leads to another page is not lost to a reload for so long
let last = Date.now(), acted = last, readAt = last, cost = 0, leaving = -patience, pending = 0, reading = false, again = false, ended = false, opened = false, following = false;

const unused = () => Date.now() - acted > quiet;

const said = {up: well, heard: () => { last = Date.now(); if (document.body.classList.contains("stale")) well(); }, news: later, down: lost, over};

export function live() {
  const channel = new BroadcastChannel("belfry");
  channel.onmessage = e => { if (e.data === "ended") over(); };
  // What changes without an event, such as the silence of a node, is read again in any case.
  const every = document.body.dataset.again * 1000;
  if (every) setInterval(() => { if (Date.now() - readAt >= (unused() ? Math.max(every, rest, cost) : every) && !document.hidden && !ended && !document.body.classList.contains("stale")) refresh(); }, 1000);
  for (const use of ["pointermove", "pointerdown", "keydown", "wheel"]) addEventListener(use, () => { acted = Date.now(); }, {passive: true});
  const wanted = document.body.dataset.events;
  if (wanted === undefined) return;
  const events = stream();
  const follow = () => { following = true; last = Date.now(); events.follow(wanted); };
  const leave = () => { following = false; events.leave(); };
  follow();
  setInterval(() => { if (following && !ended && Date.now() - last > silence) { lost(); events.follow(wanted); } }, 1000);
  let hide;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hide);
    if (document.hidden) hide = setTimeout(leave, 60000);
    else if (!following && !ended) { follow(); later(); }
  });
  addEventListener("pagehide", leave);
  addEventListener("beforeunload", () => { leaving = performance.now(); });
  addEventListener("pageshow", e => { leaving = -patience; if (e.persisted && !ended) { follow(); later(); } });
}

// stream is that of all tabs, where the browser has shared workers, and else one of this tab.
function stream() {
  if (!window.SharedWorker) {
    const own = import("./stream.js").then(m => m.stream(said));
    return {follow: query => own.then(s => s.follow(query)), leave: () => own.then(s => s.follow(null))};
  }
  const worker = new SharedWorker(policy.createScriptURL(new URL("shared.js", import.meta.url).href), {type: "module"});
  worker.port.onmessage = ({data}) => { for (const what in data) said[what](); };
  setInterval(() => { if (following) worker.port.postMessage({alive: true}); }, alive);
  return {follow: query => worker.port.postMessage({follow: query}), leave: () => worker.port.postMessage({leave: true})};
}

function lost() {
  if (!ended && !document.body.classList.contains("stale") && Date.now() - last > 3000) stale();
}

function stale() {
  document.body.classList.add("stale");
  const bar = document.getElementById("stale");
  bar.querySelector(".grow").textContent = say("stale", {t: new Date(last).toLocaleTimeString()});
  bar.hidden = false;
  document.querySelector("#live .dot")?.classList.add("off");
}

function well() {
  last = Date.now();
  const text = document.querySelector("[data-live-text]");
  if (text) text.textContent = text.dataset.liveText;
  document.querySelector("#live .dot")?.classList.remove("off");
  if (!opened) { opened = true; later(); } // what happened between the page and the stream
  if (!document.body.classList.contains("stale")) return;
  document.body.classList.remove("stale");
  document.getElementById("stale").hidden = true;
  later();
}

// over says that the session has ended. What was typed stays.
function over() {
  ended = true;
  const dialog = document.getElementById("ended");
  if (dialog && !dialog.open) dialog.showModal();
  const check = async () => {
    const answer = await fetch(at("/ui/kit"), {method: "HEAD", headers: {"X-Belfry": "1"}, cache: "no-store"}).catch(() => null);
    if (answer?.ok) { removeEventListener("focus", check); location.reload(); }
  };
  addEventListener("focus", check);
}

// pacer says how long a read waits: a quarter of a second gathers what happens, and two reads keep their distance;
// after a quiet while a few come without it, so that start and end of a run are both seen at once.
const burst = 3;
export function pacer(begun) {
  let spare = burst, counted = begun;
  return (now, idle, cost) => {
    const apart = Math.max(between, idle ? cost : 0);
    spare = Math.min(burst, spare + (now - counted) / apart) - 1;
    counted = now;
    return Math.max(250, -apart * spare);
  };
}
const pace = pacer(Date.now());
function later() {
  if (!pending) pending = setTimeout(async () => { pending = 0; await refresh(); }, pace(Date.now(), unused(), cost));
}

// part is a page of this server as a document of its own.
export const part = html => new DOMParser().parseFromString(policy.createHTML(html), "text/html");

export async function refresh() {
  if (reading) { again = true; return; }
  reading = true;
  try {
    const answer = await fetch(location.href, {headers: {"X-Belfry": "1"}, cache: "no-store"});
    if (answer.status === 401) return over();
    if (!answer.ok) return;
    const text = await answer.text(), fresh = part(text);
    readAt = Date.now();
    cost = text.length / packed; // milliseconds, at 1 kB a second
    // A part that the page did not have, such as the steps of a flow that has begun, has no place yet.
    const come = [...fresh.querySelectorAll("[data-live]")].some(part => !document.getElementById(part.id));
    if (come && performance.now() - leaving > patience && !used(document)) return location.reload();
    const state = () => document.querySelector("[data-announced] .pill"), was = state()?.className;
    for (const part of document.querySelectorAll("[data-live]")) swap(part, fresh.getElementById(part.id));
    // Readers hear changes of what stays in the page: the state itself is put in anew.
    if (was && state().className !== was) document.getElementById("announced").textContent = state().textContent;
    begun(document.getElementById("output"), fresh.getElementById("output"));
    tick();
    document.dispatchEvent(new Event("belfry:fresh"));
  } finally {
    reading = false;
    if (again) { again = false; later(); }
  }
}

// begun shows the output of an attempt that has begun since the page was read.
function begun(was, is) {
  if (!was || !is || was.dataset.attempt === is.dataset.attempt) return;
  const panel = document.importNode(is, true);
  was.replaceWith(panel);
  if (panel.dataset.output) import("./output.js").then(m => m.output(panel));
}

// used says whether a person is at work in a part. What is open and has an id is open in the new part as well.
// A link of a row has the focus again in the new row.
const used = part => part.querySelector("dialog[open], details.menu[open], details[open]:not([id]), :focus-visible:not([data-list] tr[data-href] a)");

// swap puts a part in place, unless a person is using it.
function swap(part, fresh) {
  if (!fresh || used(part)) return;
  if (part.innerHTML === fresh.innerHTML) return;
  const known = new Set([...part.querySelectorAll("tr[id]")].map(row => row.id));
  if (part.dataset.behind !== undefined && known.size) {
    const come = [...fresh.querySelectorAll("tr[id]")].filter(row => !known.has(row.id)).length;
    if (come && part.getBoundingClientRect().top < 0) return behind(part, fresh, come);
    document.querySelector(".behind")?.remove();
  }
  const cursor = part.querySelector("tr.cursor")?.dataset.href, held = part.querySelector("a:focus"), inRow = held?.closest("tr").dataset.href;
  const wide = () => part.querySelector(".scroll-x") ?? part, left = wide().scrollLeft;
  for (const was of part.querySelectorAll("details[id]")) {
    const is = fresh.querySelector("#" + CSS.escape(was.id));
    if (is && is.dataset.shown === was.dataset.shown) is.open = was.open;
  }
  part.hidden = fresh.hidden;
  Object.assign(part.dataset, fresh.dataset);
  const ticked = [...part.querySelectorAll("input[type=checkbox]:checked")].map(box => box.name + "=" + box.value);
  part.replaceChildren(...document.importNode(fresh, true).childNodes);
  if (ticked.length) {
    const all = document.querySelector("[data-match]")?.value;
    for (const box of part.querySelectorAll("tbody input[type=checkbox]")) box.checked = all || ticked.includes(box.name + "=" + box.value);
    part.querySelector("tbody input[type=checkbox]")?.dispatchEvent(new Event("change", {bubbles: true}));
  }
  wide().scrollLeft = left;
  if (known.size) for (const row of part.querySelectorAll("tr[id]")) if (!known.has(row.id)) row.classList.add("new-row");
  if (held) [...part.querySelectorAll(`tr[data-href="${CSS.escape(inRow)}"] a`)].find(a => a.getAttribute("href") === held.getAttribute("href"))?.focus({preventScroll: true, focusVisible: true});
  if (cursor) part.querySelector(`tr[data-href="${CSS.escape(cursor)}"]`)?.classList.add("cursor");
}

// behind says how many rows have come to a list that a person has scrolled into: they would push
// away what is read. The rows that are there are kept current.
function behind(part, fresh, n) {
  for (const row of part.querySelectorAll("tr[id]")) {
    const is = fresh.querySelector("#" + CSS.escape(row.id));
    if (is && is.innerHTML !== row.innerHTML) row.replaceChildren(...document.importNode(is, true).childNodes);
  }
  let note = document.querySelector(".behind");
  if (!note) {
    note = document.createElement("button");
    note.type = "button";
    note.className = "btn behind";
    const back = () => { if (!note.isConnected) return removeEventListener("scroll", back); if (part.getBoundingClientRect().top >= 0) later(); };
    addEventListener("scroll", back, {passive: true});
    note.addEventListener("click", () => { part.closest("main").firstElementChild.scrollIntoView(); scrollTo(0, 0); note.remove(); later(); });
    part.after(note);
  }
  note.textContent = say("behind", {n});
}
