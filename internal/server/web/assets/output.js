// The output of a run. The server knows where each line begins: lines are read where they are
// seen, and searched on the server. Text becomes text nodes, and of the escape sequences of
// terminals only colours, weights and underlines count.
import {say, make} from "./words.js";

const row = 19;          // the height of a line in the style sheet
const wrapMax = 2000;    // so many lines are all in the page and wrap; of more only those that are seen
const heightMax = 15e6;  // browsers draw no higher element
const page = 500;        // lines that are read at once
const pagesMax = 60;     // pages of lines in memory
const hitsMax = 1000;    // hits that are read at once
const rest = 250;        // milliseconds between reads of output that is being written

export function output(panel) {
  const log = panel.querySelector("[data-log]"), size = panel.querySelector("[data-output-size]");
  const followButton = panel.querySelector("[data-output-follow]"), wrapButton = panel.querySelector("[data-output-wrap]");
  const timesButton = panel.querySelector("[data-output-times]"), stream = panel.dataset.stream;
  const search = panel.querySelector("[data-output-search]"), hitText = panel.querySelector("[data-output-hits]");
  const errorsButton = panel.querySelector("[data-output-errors]"), fullButton = panel.querySelector("[data-output-full]");
  const leftOut = panel.querySelector("[data-output-missing]");
  const address = panel.dataset.output.replace(/output$/, "lines"), attempt = panel.dataset.attempt;
  const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: panel.dataset.zone});
  const pages = new Map(), reading = new Set(); // by the number of a page, from 0
  let total = 0, follow = panel.dataset.follow !== undefined, wrap = true, drawn = 0, frame = 0, hits = [], hit = -1, more = 0, linked = [0, 0], cut = 0, cutTo = 0;

  const virtual = () => total > wrapMax;
  const view = make("div", {className: "view"});

  // A line is found by its place in what is shown: of one stream, and behind a cut, that is not its number.
  const placeOf = line => line.place, left = () => cutTo && cutTo - cut;
  const lineAt = n => pages.get(Math.floor((n - 1) / page))?.[(n - 1) % page];

  // ask reads lines from a number on, or the last ones, and keeps them.
  async function ask(path, query) {
    const answer = await fetch(`${address}${path}?${new URLSearchParams({attempt, ...stream && {stream}, ...query})}`, {cache: "no-store"}).catch(() => null);
    return answer?.ok ? answer.json() : null;
  }
  async function read(query) {
    const answer = await ask("", {count: page, ...query});
    if (!answer) return;
    total = Math.max(total, answer.total);
    if (answer.left_out) {
      leftOut.hidden = false;
      [cut, cutTo] = [answer.left_out_line, answer.left_out_to ?? 0];
      const n = (answer.left_out / 1e6).toLocaleString(undefined, {maximumFractionDigits: 1}), line = cut.toLocaleString();
      leftOut.querySelector("a").textContent = cutTo ? say("left_out", {n, line, to: cutTo.toLocaleString()}) : say("left_out_bytes", {n, line});
      leftOut.querySelector("a").href = "#L" + cut;
    }
    for (const line of answer.items) {
      const n = placeOf(line), at = Math.floor((n - 1) / page), lines = pages.get(at) ?? [];
      lines[(n - 1) % page] = line;
      pages.delete(at); // so that the page used last stands last
      pages.set(at, lines);
    }
    for (const at of pages.keys()) { if (pages.size <= pagesMax) break; pages.delete(at); }
  }

  // need reads the lines of a span that are missing, and draws again when they have come.
  async function need(from, to) {
    const missing = [];
    for (let n = from; n <= to; n++) {
      const at = Math.floor((n - 1) / page);
      if (!lineAt(n) && !reading.has(at)) { reading.add(at); missing.push(at); }
      if (!lineAt(n)) n = (at + 1) * page;
    }
    if (!missing.length) return;
    await Promise.all(missing.map(at => read({from: at * page + 1}).finally(() => reading.delete(at))));
    soon();
  }

  function element(n) {
    const line = lineAt(n), [number, time, text] = ["n", "t", "x"].map(className => make("span", {className})), div = make("div", {}, number, time, text);
    number.textContent = line ? line.line : stream || cut ? "" : n;
    if (!line) { text.classList.add("skel"); return div; }
    if (line.time) time.textContent = clock.format(new Date(line.time));
    if (line.stream === "stderr") div.classList.add("e");
    colour(text, line.text, search.value.toLowerCase());
    if (line.cut) text.append(make("i", {}, " " + say("cut", {n: line.cut.toLocaleString()})));
    if (hits[hit] === n) div.classList.add("hit");
    if (line.line >= linked[0] && line.line <= linked[1]) div.classList.add("lnk");
    return div;
  }

  function draw() {
    frame = 0;
    if (virtual()) drawSeen(); else drawAll();
    size.textContent = total ? say("lines", {n: (total + left()).toLocaleString()}) + (size.dataset.bytes ? ", " + size.dataset.bytes : "") : size.textContent;
    followButton.ariaPressed = follow;
  }

  function drawAll() {
    if (!total) return;
    log.classList.toggle("nowrap", !wrap);
    if (!drawn && lineAt(1)) log.replaceChildren(); // until then what is there stays
    let end = drawn;
    while (end < total && lineAt(end + 1)) end++;
    if (drawn) { log.lastChild?.remove(); drawn--; } // it may not have been whole
    const part = document.createDocumentFragment();
    for (; drawn < end; drawn++) part.append(element(drawn + 1));
    log.append(part);
    if (follow) log.scrollTop = log.scrollHeight;
    if (drawn < total) need(drawn + 1, total);
  }

  function drawSeen() {
    if (log.firstChild !== view) {
      log.replaceChildren(view);
      log.classList.add("nowrap");
      wrapButton.disabled = true;
      wrapButton.ariaPressed = false;
    }
    const high = Math.min(total * row, heightMax);
    view.style.height = high + "px";
    if (follow) log.scrollTop = high;
    const seen = Math.ceil(log.clientHeight / row), most = Math.max(1, high - log.clientHeight), top = Math.min(log.scrollTop, most);
    const from = Math.max(1, Math.round(top / most * Math.max(0, total - seen)) + 1 - 10), to = Math.min(total, from + seen + 20);
    const exact = total * row <= heightMax;
    const part = document.createDocumentFragment();
    for (let n = from; n <= to; n++) {
      const div = element(n);
      div.style.transform = `translateY(${exact ? (n - 1) * row : Math.max(0, top - 10 * row) + (n - from) * row}px)`;
      part.append(div);
    }
    view.replaceChildren(part);
    need(from, to);
  }

  const soon = () => { frame ||= requestAnimationFrame(draw); };
  const anew = () => { drawn = 0; soon(); };

  async function begin() {
    await read({});
    if (!total) return;
    if (panel.dataset.follow === undefined && virtual()) { draw(); log.scrollTop = log.scrollHeight; }
    soon();
    jump();
  }

  // watch follows output that is being written: its events say that there is more. A hidden tab
  // leaves its connection to others.
  async function watch() {
    const own = new AbortController();
    let hide;
    const look = () => {
      clearTimeout(hide);
      if (document.hidden) hide = setTimeout(() => own.abort(), 60000);
      else if (own.signal.aborted) { document.removeEventListener("visibilitychange", look); watch(); }
    };
    document.addEventListener("visibilitychange", look);
    const answer = await fetch(`${panel.dataset.output}?attempt=${attempt}&tail=1${stream ? "&stream=" + stream : ""}`, {headers: {Accept: "text/event-stream"}, cache: "no-store", signal: own.signal}).catch(() => null);
    if (!answer?.ok) return;
    const reader = answer.body.getReader();
    let busy = false, again = false;
    const news = async () => {
      if (busy) { again = true; return; }
      busy = true;
      const before = total;
      await read({from: Math.max(1, total)});
      // What does not fit into one answer is read where it is seen.
      if (total > before + page && follow) await read({});
      soon();
      setTimeout(() => { busy = false; if (again) { again = false; news(); } }, rest);
    };
    for (;;) {
      const {done} = await reader.read().catch(() => ({done: true}));
      news();
      if (done) break;
    }
    if (!own.signal.aborted) { clearTimeout(hide); document.removeEventListener("visibilitychange", look); }
  }

  function go(n) {
    follow = false;
    if (virtual()) {
      const high = Math.min(total * row, heightMax), seen = log.clientHeight / row;
      log.scrollTop = Math.max(0, n - seen / 2) / Math.max(1, total - seen) * (high - log.clientHeight);
    }
    drawn = 0;
    draw();
    if (!virtual()) log.children[n - 1]?.scrollIntoView({block: "nearest"});
  }

  function jump() {
    const m = /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash);
    if (!m) return;
    linked = [+m[1], +(m[2] ?? m[1])];
    if (stream) return anew();
    go(Math.min(cutTo && linked[0] > cut ? Math.max(cut, linked[0] - left()) : linked[0], total));
  }
  addEventListener("hashchange", jump);

  let asked = 0;
  async function find(step) {
    const text = search.value, errors = errorsButton.ariaPressed === "true", mine = ++asked;
    if (step === 0) { hits = []; hit = -1; more = text || errors ? 1 : 0; hitText.classList.remove("skel"); }
    if (more && hit + step >= hits.length - 1) {
      hitText.classList.add("skel");
      const answer = await ask(":search", {text, errors, from: more, count: hitsMax});
      if (mine === asked) hitText.classList.remove("skel");
      if (!answer || mine !== asked) return;
      hits.push(...answer.items.map(placeOf));
      more = answer.next_line ?? 0;
    }
    if (hits.length) hit = step === 0 ? 0 : (hit + step + hits.length) % hits.length;
    hitText.textContent = text || errors ? say("hits", {i: hit + 1, n: hits.length + (more ? "+" : "")}) : "";
    if (hits.length) go(hits[hit]); else anew();
  }
  let typing;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(find, 150, 0); });
  search.addEventListener("keydown", e => { if (e.key === "Enter") { e.preventDefault(); find(e.shiftKey ? -1 : 1); } });
  for (const to of panel.querySelectorAll("[data-output-to]")) to.addEventListener("click", () => find(+to.dataset.outputTo));
  followButton.addEventListener("click", () => { follow = !follow; if (follow) log.scrollTop = log.scrollHeight; draw(); });
  wrapButton.addEventListener("click", () => { wrap = !wrap; wrapButton.ariaPressed = wrap; anew(); });
  errorsButton.addEventListener("click", () => { errorsButton.ariaPressed = errorsButton.ariaPressed !== "true"; find(0); });
  fullButton.hidden = !document.fullscreenEnabled;
  fullButton.addEventListener("click", () => { if (document.fullscreenElement) document.exitFullscreen(); else panel.requestFullscreen(); });
  panel.addEventListener("fullscreenchange", () => { fullButton.ariaPressed = document.fullscreenElement === panel; soon(); });
  // A phone has no room for times until they are asked for.
  let times = !matchMedia("(max-width:640px)").matches;
  const timed = () => { log.classList.toggle("timed", times); log.classList.toggle("bare", !times); timesButton.ariaPressed = times; };
  timesButton.addEventListener("click", () => { times = !times; timed(); });
  timed();
  log.addEventListener("click", e => { if (e.target.matches(".n")) location.hash = "L" + e.target.textContent; });
  log.addEventListener("wheel", e => { if (e.deltaY < 0) { follow = false; followButton.ariaPressed = false; } }, {passive: true});
  log.addEventListener("scroll", () => { if (virtual()) soon(); }, {passive: true});
  begin().then(() => {
    if (search.value) find(0); // typed before this script was loaded
    if (panel.dataset.follow !== undefined) watch();
  });
}

const hidden = /([\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffd])\1*/g;
const tones = [0, 1, 2, 3, 4, 5, 6, 0];
const hues = [[18, 1], [44, 7], [70, 3], [165, 2], [200, 6], [262, 4], [345, 5]]; // as in ansi.go

// shown is what a terminal shows of a line with carriage returns.
function shown(line) {
  let seen = "";
  for (const part of line.split("\r")) {
    if (part) seen = (seen + part).includes("\u001b") ? part : part + [...seen].slice([...part].length).join("");
  }
  return seen;
}

// pieces writes text with places to break: browsers need minutes for one word of 64 kB.
function pieces(to, text) {
  for (let i = 0; i < text.length; i += 200) {
    if (i) to.append(document.createElement("wbr"));
    to.append(text.slice(i, i + 200));
  }
}

// colour writes a line with its looks and with what is searched for.
function colour(to, line, wanted) {
  let fore, back, bold, under, inverse;
  const plain = () => { fore = back = 0; bold = under = inverse = false; };
  const look = () => {
    const [a, b] = inverse ? [back, fore] : [fore, back];
    return [inverse && !b ? "ai" : a && "a" + a, b && "b" + b, bold && "ab", under && "au"].filter(Boolean).join(" ");
  };
  const add = text => {
    text = text.replace(hidden, (all, c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›${all.length > 1 ? "×" + all.length : ""}`);
    if (!text) return;
    const span = make("span", {className: look()});
    const low = text.toLowerCase();
    let at = 0;
    for (let i; wanted && (i = low.indexOf(wanted, at)) >= 0; at = i + wanted.length) {
      pieces(span, text.slice(at, i));
      span.append(make("mark", {}, text.slice(i, i + wanted.length)));
    }
    pieces(span, text.slice(at));
    to.append(span);
  };
  plain();
  for (const piece of shown(line).split(/(\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b.?)/)) {
    if (piece[0] !== "\u001b") { add(piece); continue; }
    if (!/^\u001b\[[\d;:]*m$/.test(piece)) continue;
    const n = piece.slice(2, -1).split(/[;:]/).map(Number);
    for (let i = 0; i < n.length; i++) {
      const c = n[i], ten = Math.floor(c / 10), set = tone => { if (ten % 10 === 3 || ten === 9) fore = tone; else back = tone; };
      if (c === 0) plain();
      else if (c === 1 || c === 22) bold = c === 1;
      else if (c === 4 || c === 24) under = c === 4;
      else if (c === 7 || c === 27) inverse = c === 7;
      else if (c === 38 || c === 48) {
        const many = n[i + 1] === 5;
        set(many ? of256(n[i + 2] || 0) : n[i + 1] === 2 ? nearest(n[i + 2] || 0, n[i + 3] || 0, n[i + 4] || 0) : 0);
        i += many ? 2 : 4;
      } else if (ten === 3 || ten === 4 || ten === 9 || ten === 10) set(c === 90 || c === 100 ? 8 : tones[c % 10] ?? 0);
    }
  }
}

function of256(c) {
  if (c < 16) return c === 8 ? 8 : tones[c % 8];
  if (c >= 232) return 8;
  c -= 16;
  const level = n => n && 55 + 40 * n;
  return nearest(level(Math.floor(c / 36)), level(Math.floor(c / 6) % 6), level(c % 6));
}

function nearest(r, g, b) {
  const high = Math.max(r, g, b), spread = high - Math.min(r, g, b);
  if (spread < 40) return high > 60 && high < 200 ? 8 : 0;
  const hue = high === r ? (60 * (g - b) / spread + 360) % 360 : high === g ? 60 * (b - r) / spread + 120 : 60 * (r - g) / spread + 240;
  return hues.find(([end]) => hue < end)?.[1] ?? 1;
}
