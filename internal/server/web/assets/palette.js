// The palette: pages, jobs and what can be done, by a few letters.
import {at} from "./at.js";
import {words, make, send} from "./words.js";

const pages = [["nav.overview", "/"], ["nav.jobs", "/jobs"], ["nav.runs", "/runs"], ["nav.timeline", "/timeline"], ["nav.flows", "/flows"], ["nav.nodes", "/nodes"], ["executors.title", "/executors"], ["nav.notifications", "/notifications"], ["nav.audit", "/audit"], ["shared.title", "/shared"], ["nav.settings", "/settings"], ["wall.title", "/wall"], ["jobs.new", "/jobs/new"], ["jobs.import", "/jobs/import"]];
const dialog = document.getElementById("palette");
const input = dialog?.querySelector("input");
const list = document.getElementById("found");
let asked = 0, timer;

export function palette() {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  input.value = "";
  input.focus();
  show(match(""));
}

function match(text) {
  const t = text.toLowerCase();
  const actions = [...document.querySelectorAll("main [data-key]")].map(el => ({text: el.textContent.trim(), kind: words.action, act: () => el.click()}));
  const direct = /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(t) ? [{text: t.toUpperCase(), kind: words["nav.runs"], href: at("/runs/") + t.toUpperCase()}]
    : /^[^\s=]+=\S+$/.test(t) ? [{text: text, kind: words["nav.jobs"], href: at("/jobs?q=") + encodeURIComponent("label:" + text)}] : [];
  const themes = [["", "system"], ["light", "light"], ["dark", "dark"]].map(([theme, name]) => ({text: `${words["settings.theme"]}: ${words["settings." + name]}`, kind: words.action, act: () => look({theme})}));
  const langs = [["en", "English"], ["zh", "中文"]].map(([lang, name]) => ({text: `${words["settings.lang"]}: ${name}`, kind: words.action, act: () => look({lang})}));
  return [...direct, ...pages.map(([key, href]) => ({text: words[key], kind: words.page, href: at(href)})), ...actions, ...themes, ...langs].filter(x => x.text?.toLowerCase().includes(t));
}

// look changes how pages look, as the form of the settings does.
const look = choice => send(at("/ui/look"), choice);

// verbs lead to the menu of a job that does what was typed before its name.
const verbs = [["job.run_now", "run", "?open=r"], ["job.pause", "pause", "?open=p"], ["job.resume", "resume", "?open=p"], ["job.edit", "edit", "/edit"], ["job.schedule", "schedule", "/schedule"], ["job.backfill", "backfill", "/backfill"],
  ["run.retry", "retry", ["runs?outcome=failed&page_size=100", x => ({act: () => send(`${at("/runs/")}${x.id}/retry`)})]], ["run.cancel", "cancel", ["runs?state=running&page_size=100", x => ({href: `${at("/runs/")}${x.id}?open=c`})]],
  ["overview.approve", "approve", ["attention", x => x.kind === "approval" && {href: at("/runs/") + x.run}]], ["overview.snooze", "snooze", ["attention", x => ({act: () => send(at("/attention/snooze"), {about: x.kind === "alarms" ? "channels" : x.source ? "source " + x.source : x.job ?? x.node, until: "1h"})})]]];
function verbOf(text) {
  const first = text.split(/\s/)[0].toLowerCase(), rest = text.slice(first.length).trim();
  const verb = rest && verbs.find(([key, word]) => words[key] && (first === word || words[key].split(/[ …]/)[0].toLowerCase() === first));
  return verb ? {say: words[verb[0]] + " ", key: verb[2], rest: rest.replace(/^now\s+/i, "")} : {say: "", key: "", rest: text};
}

function show(items) {
  list.replaceChildren(...items.map((item, i) => {
    const option = make("div", {role: "option", id: "found-" + i, ariaSelected: i === 0, item, onclick: () => choose(option)}, item.text, make("small", {}, item.kind));
    return option;
  }));
  if (!items.length) list.append(make("div", {className: "empty"}, words.nothing));
  input.setAttribute("aria-activedescendant", items.length ? "found-0" : "");
}

function choose(option) {
  if (!option?.item) return;
  dialog.close();
  if (option.item.href) location.href = option.item.href; else option.item.act();
}

input?.addEventListener("input", () => {
  clearTimeout(timer);
  const text = input.value.trim(), mine = ++asked, verb = verbOf(text);
  show(match(text));
  if (!text) return;
  timer = setTimeout(async () => {
    if (Array.isArray(verb.key)) { // what it is done to is no job
      const [list, of] = verb.key, answer = await fetch(at("/api/v1/") + list).catch(() => null);
      if (!answer?.ok || mine !== asked) return;
      const {items} = await answer.json(), name = x => x.job ?? x.source ?? x.node ?? words["nav.notifications"];
      return show(items.map(x => name(x).includes(verb.rest) && of(x) && {text: `${verb.say}${name(x)} ${x.cause ?? x.text ?? ""}`, kind: words.action, ...of(x)}).filter(Boolean).slice(0, 12));
    }
    const found = [], query = new URLSearchParams({text: verb.rest.split("/").pop(), ...verb.rest.includes("/") && {namespace: verb.rest.split("/")[0]}, page_size: 12});
    do { // a page of the API searches for a moment only, and may have found nothing
      const answer = await fetch(at("/api/v1/jobs?") + query).catch(() => null);
      if (!answer?.ok || mine !== asked) return;
      const page = await answer.json();
      found.push(...page.items.map(j => ({name: (j.namespace ?? "default") + "/" + j.name, title: j.title ?? ""})));
      if (page.items.length) show([...found.map(({name, title}) => ({text: `${verb.say}${name} ${title}`.trim(), kind: verb.key ? words.action : words.job, href: at("/jobs/") + name + verb.key})), ...match(text)]);
      query.set("page_token", page.next_page_token ?? "");
    } while (query.get("page_token") && found.length < 12 && dialog.open);
  }, 120);
});

dialog?.addEventListener("keydown", e => {
  const all = [...list.querySelectorAll("[role=option]")], at = all.findIndex(o => o.getAttribute("aria-selected") === "true");
  if (e.key === "Escape") { e.preventDefault(); dialog.close(); } // a field for searches would only be cleared
  if (e.key === "Enter") { e.preventDefault(); choose(all[at]); }
  if (e.key !== "ArrowDown" && e.key !== "ArrowUp" || !all.length) return;
  e.preventDefault();
  const next = (at + (e.key === "ArrowDown" ? 1 : -1) + all.length) % all.length;
  if (all[at]) all[at].ariaSelected = false;
  all[next].ariaSelected = true;
  all[next].scrollIntoView({block: "nearest"});
  input.setAttribute("aria-activedescendant", all[next].id);
});
dialog?.addEventListener("click", e => { if (e.target === dialog) dialog.close(); });
