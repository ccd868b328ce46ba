// The output of a run: lines in memory, elements for those that are seen alone. Text becomes
// text nodes, and of the escape sequences of terminals only colours and weights count.
import {words, say} from "./words.js";

const row = 19;             // the height of a line in the style sheet
const wrapMax = 2000;       // so many lines wrap; more are shown unwrapped, each of one height
const heightMax = 15e6;     // browsers draw no higher element
const lineMax = 64 * 1024;  // of a line; the rest comes when it is asked for
const hitsMax = 10000;

export function output(panel) {
  const log = panel.querySelector("[data-log]"), size = panel.querySelector("[data-output-size]");
  const followButton = panel.querySelector("[data-output-follow]"), wrapButton = panel.querySelector("[data-output-wrap]");
  const search = panel.querySelector("[data-output-search]"), hitText = panel.querySelector("[data-output-hits]");
  const query = `?timestamps=true&attempt=${panel.dataset.attempt}`;
  let lines = [], rest = "", follow = panel.dataset.follow !== undefined, wrap = true, drawn = 0, first = -1, hits = [], hit = -1, linked = [0, 0], frame = 0;
  const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: panel.dataset.zone});
  const wide = new Set(); // lines that are shown whole

  const virtual = () => lines.length > wrapMax;
  const view = document.createElement("div");
  view.className = "view";

  function element(i) {
    const raw = lines[i], div = document.createElement("div");
    const m = /^(\d{4}-\d\d-\d\dT\S+) ([|!]) ?/.exec(raw);
    const n = document.createElement("span"), t = document.createElement("span"), x = document.createElement("span");
    n.className = "n"; n.textContent = i + 1;
    t.className = "t";
    x.className = "x";
    if (m) { t.textContent = clock.format(new Date(m[1])); if (m[2] === "!") div.className = "e"; }
    let text = m ? raw.slice(m[0].length) : raw;
    const cut = text.length > lineMax && !wide.has(i);
    if (cut) text = text.slice(0, lineMax);
    colour(x, text, search.value.toLowerCase());
    if (cut) {
      const more = document.createElement("button");
      more.className = "btn s"; more.type = "button"; more.textContent = words.more;
      more.onclick = () => { wide.add(i); first = -1; draw(true); };
      x.append(more);
    }
    if (hits[hit] === i) div.classList.add("hit");
    if (i + 1 >= linked[0] && i + 1 <= linked[1]) div.classList.add("lnk");
    div.append(n, t, x);
    return div;
  }

  function draw(anew) {
    if (!virtual()) {
      log.classList.toggle("nowrap", !wrap);
      if (anew || log.firstChild === view) { log.replaceChildren(); drawn = 0; }
      const part = document.createDocumentFragment();
      for (; drawn < lines.length; drawn++) part.append(element(drawn));
      log.append(part);
    } else {
      if (log.firstChild !== view) { log.replaceChildren(view); log.classList.add("nowrap"); first = -1; wrapButton.disabled = true; wrapButton.setAttribute("aria-pressed", false); }
      const high = Math.min(lines.length * row, heightMax);
      view.style.height = high + "px";
      const seen = Math.ceil(log.clientHeight / row), most = Math.max(1, high - log.clientHeight);
      if (follow && !anew) log.scrollTop = high;
      const from = Math.max(0, Math.round(Math.min(1, log.scrollTop / most) * Math.max(0, lines.length - seen)) - 10);
      const to = Math.min(lines.length, from + seen + 20);
      if (from !== first || anew || to > drawn) {
        const top = Math.min(log.scrollTop - (log.scrollTop / most >= 1 ? 0 : 0), most) - 10 * row;
        const part = document.createDocumentFragment();
        for (let i = from; i < to; i++) {
          const div = element(i);
          div.style.transform = `translateY(${lines.length * row <= heightMax ? i * row : Math.max(0, top) + (i - from) * row}px)`;
          part.append(div);
        }
        view.replaceChildren(part);
        first = from; drawn = to;
      }
    }
    if (follow && !virtual()) log.scrollTop = log.scrollHeight;
    size.textContent = say("lines", {n: lines.length.toLocaleString()});
    followButton.setAttribute("aria-pressed", follow);
  }
  const soon = anew => { frame ||= requestAnimationFrame(() => { frame = 0; draw(anew); }); };

  function take(text) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    for (const p of parts) lines.push(p.endsWith("\r") ? p.slice(0, -1) : p);
  }
  function end() { if (rest) { lines.push(rest); rest = ""; } soon(); }

  async function read() {
    const live = panel.dataset.follow !== undefined;
    const answer = await fetch(panel.dataset.output + query, {headers: {Accept: live ? "text/event-stream" : "text/plain"}, cache: "no-store"});
    if (!answer.ok) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let stream = "";
    log.replaceChildren();
    for (;;) {
      const {value, done} = await reader.read();
      if (done) break;
      if (!live) { take(value); soon(); continue; }
      stream += value;
      const events = stream.split("\n\n");
      stream = events.pop();
      for (const event of events) {
        const data = /^event: output\ndata: (.*)$/m.exec(event);
        if (data) take(JSON.parse(data[1]).text);
      }
      soon();
    }
    end();
    jump();
  }

  function go(i) {
    follow = false;
    if (virtual()) {
      const high = Math.min(lines.length * row, heightMax);
      log.scrollTop = lines.length * row <= heightMax ? i * row - log.clientHeight / 2 : i / lines.length * high;
      first = -1;
    }
    draw(true);
    if (!virtual()) log.children[i]?.scrollIntoView({block: "center"});
  }

  function jump() {
    const m = /^#L(\d+)(?:-L?(\d+))?$/.exec(location.hash);
    if (m) { linked = [+m[1], +(m[2] ?? m[1])]; go(Math.min(linked[0], lines.length) - 1); } else if (panel.dataset.follow === undefined && virtual()) { log.scrollTop = log.scrollHeight; soon(true); }
  }
  addEventListener("hashchange", jump);

  function find(step) {
    const text = search.value.toLowerCase();
    if (step === 0) {
      hits = []; hit = -1;
      if (text) for (let i = 0; i < lines.length && hits.length < hitsMax; i++) if (lines[i].toLowerCase().includes(text, 24)) hits.push(i);
      if (hits.length) hit = 0;
    } else if (hits.length) hit = (hit + step + hits.length) % hits.length;
    hitText.textContent = text ? say("hits", {i: hit + 1, n: hits.length}) : "";
    if (hits.length) go(hits[hit]); else draw(true);
  }
  let typing;
  search.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(find, 150, 0); });
  search.addEventListener("keydown", e => { if (e.key === "Enter") { e.preventDefault(); find(e.shiftKey ? -1 : 1); } });
  followButton.addEventListener("click", () => { follow = !follow; draw(); if (follow) log.scrollTop = log.scrollHeight; });
  wrapButton.addEventListener("click", () => { wrap = !wrap; wrapButton.setAttribute("aria-pressed", wrap); draw(true); });
  log.addEventListener("click", e => { if (e.target.matches(".n")) location.hash = "L" + e.target.textContent; });
  log.addEventListener("wheel", e => { if (e.deltaY < 0) { follow = false; followButton.setAttribute("aria-pressed", false); } }, {passive: true});
  log.addEventListener("scroll", () => { if (virtual()) soon(); }, {passive: true});
  read();
}

const hidden = /([\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffd])\1*/g;
const tones = [0, 1, 2, 3, 4, 5, 4, 0];

// pieces writes text with places to break: browsers need minutes for one word of 64 kB.
function pieces(to, text) {
  for (let i = 0; i < text.length; i += 200) {
    if (i) to.append(document.createElement("wbr"));
    to.append(text.slice(i, i + 200));
  }
}

// colour writes a line with its looks and with what is searched for.
function colour(to, line, wanted) {
  let tone = 0, bold = false;
  const add = text => {
    text = text.replace(hidden, (all, c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›${all.length > 1 ? "×" + all.length : ""}`);
    if (!text) return;
    const span = document.createElement("span");
    span.className = (tone ? "a" + tone : "") + (bold ? " ab" : "");
    const low = text.toLowerCase();
    let at = 0;
    for (let i; wanted && (i = low.indexOf(wanted, at)) >= 0; at = i + wanted.length) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(i, i + wanted.length);
      pieces(span, text.slice(at, i));
      span.append(mark);
    }
    pieces(span, text.slice(at));
    to.append(span);
  };
  for (const piece of line.split(/(\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b.?)/)) {
    if (piece[0] !== "\u001b") { add(piece); continue; }
    if (!/^\u001b\[[\d;:]*m$/.test(piece)) continue;
    const n = piece.slice(2, -1).split(/[;:]/).map(Number);
    for (let i = 0; i < n.length; i++) {
      if (n[i] === 0) { tone = 0; bold = false; } else if (n[i] === 1) bold = true; else if (n[i] === 22) bold = false; else if (n[i] === 39) tone = 0;
      else if (n[i] >= 30 && n[i] <= 37) tone = tones[n[i] - 30]; else if (n[i] === 90) tone = 8; else if (n[i] > 90 && n[i] <= 97) tone = tones[n[i] - 90];
      else if (n[i] === 38 && n[i + 1] === 5) { tone = of256(n[i + 2]); i += 2; } else if (n[i] === 38 && n[i + 1] === 2) { tone = nearest(n[i + 2], n[i + 3], n[i + 4]); i += 4; }
      else if (n[i] === 48) i += n[i + 1] === 5 ? 2 : 4;
    }
  }
}

function of256(c) {
  if (c < 16) return tones[c % 8];
  if (c >= 232) return 8;
  c -= 16;
  return nearest(Math.floor(c / 36) * 51, Math.floor(c / 6) % 6 * 51, c % 6 * 51);
}

function nearest(r, g, b) {
  const high = Math.max(r, g, b), low = Math.min(r, g, b);
  if (high - low < 40) return high > 60 && high < 200 ? 8 : 0;
  if (r === high) return g > (r + low) / 2 && g > b ? 3 : b > (r + low) / 2 ? 5 : 1;
  return g === high && b < (g + low) * 2 / 3 ? 2 : 4;
}
