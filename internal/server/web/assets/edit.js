// The editor: what is typed is checked by the server, which also keeps form and text in step.
import {at} from "./at.js";
import {part} from "./live.js";
import {make} from "./words.js";
import {paint as paintLine, paintMax} from "./paint.js";

// painted puts a coloured copy with line numbers behind a text, and returns what paints it anew.
function painted(text) {
  const box = make("div", {className: "painted"}), copy = make("pre", {ariaHidden: true});
  text.before(box);
  box.append(copy, text);
  const scroll = () => { copy.scrollTop = text.scrollTop; copy.scrollLeft = text.scrollLeft; };
  text.addEventListener("scroll", scroll, {passive: true});
  return () => {
    box.classList.toggle("plain", text.value.length > paintMax);
    if (text.value.length > paintMax) return;
    const bad = new Set([...document.querySelectorAll("#checked [data-line]")].map(e => e.dataset.line));
    copy.replaceChildren(...text.value.split("\n").map((line, i) => {
      const div = document.createElement("div");
      if (bad.has(String(i + 1))) div.className = "bad";
      paintLine(div, line);
      if (!line) div.append("\u200b");
      return div;
    }));
    scroll();
  };
}

export function edit() {
  const form = document.querySelector("[data-edit]"), text = form.querySelector("[data-document]");
  let timer, asked = 0;
  const paint = painted(text);
  paint();

  async function check() {
    const mine = ++asked;
    const data = new URLSearchParams(new FormData(form));
    data.set("action", "check");
    const answer = await fetch(form.getAttribute("action"), {method: "POST", body: data, headers: {"X-Belfry": "1"}}).catch(() => null);
    if (!answer || mine !== asked || answer.status === 401) return;
    const fresh = part(await answer.text());
    const checked = fresh.getElementById("checked");
    if (!checked) return;
    document.getElementById("checked").replaceChildren(...document.importNode(checked, true).childNodes);
    const value = fresh.querySelector("[data-document]").value;
    if (document.activeElement !== text && text.value !== value) text.value = value;
    for (const field of form.querySelectorAll("[data-field]")) {
      const other = fresh.getElementById(field.id);
      if (!other) continue;
      if (document.activeElement !== field) field.value = other.value;
      field.readOnly = other.readOnly;
      field.placeholder = other.placeholder;
      if (field.rows) field.rows = Math.max(other.rows, field.value.split("\n").length);
      // What was sent is in the text by now, also of the field that is being typed in.
      form.elements["was." + field.name.slice(6)].value = other.value;
      const box = field.closest(".field"), said = other.closest(".field").querySelector(".err,.hint");
      box.className = other.closest(".field").className;
      box.querySelector(".err,.hint")?.remove();
      if (said) box.append(document.importNode(said, true));
      if (said?.matches(".err") && box.closest("details")) box.closest("details").open = true;
    }
    for (const fold of form.querySelectorAll("details[id] [data-summary]")) {
      const other = fresh.querySelector("#" + fold.closest("details").id + " [data-summary]");
      if (other) { fold.textContent = fold.title = other.textContent; fold.className = other.className; }
    }
    if (document.activeElement === text) for (const kind of form.querySelectorAll("[data-kinds] input")) kind.checked = Boolean(fresh.getElementById(kind.id)?.checked);
    paint();
  }
  // Another kind of schedule or work takes the fields of the others out of the document, and gives them back
  // when it is chosen again.
  form.addEventListener("change", e => {
    if (!e.target.matches("[data-kinds] input")) return;
    for (const box of e.target.closest(".fields").querySelectorAll("[data-kind]")) {
      const field = box.querySelector("[data-field]"), chosen = box.dataset.kind === e.target.value;
      if (field.readOnly || chosen === Boolean(field.value)) continue;
      if (!chosen) field.dataset.kept = field.value;
      field.value = chosen ? field.dataset.kept ?? box.dataset.begins ?? "" : "";
      box.classList.toggle("set", Boolean(field.value));
    }
  });
  form.addEventListener("input", () => { paint(); clearTimeout(timer); timer = setTimeout(check, 150); });
  form.dataset.ready = "1"; // what is typed from now on is checked
  // live.js reads the version that is saved now.
  document.addEventListener("belfry:fresh", () => {
    const saved = form.querySelector("#present [data-version]"), note = form.querySelector("[data-meanwhile]");
    if (saved) note.hidden = +saved.dataset.version <= +form.elements.present.value;
  });
  form.addEventListener("click", e => {
    if (e.target.closest("[data-download]")) {
      make("a", {href: URL.createObjectURL(new Blob([text.value])), download: (/^name: *["']?([\w.-]+)/m.exec(text.value)?.[1] ?? "document") + ".yaml"}).click();
    }
    const line = e.target.closest("[data-line]");
    if (!line) return;
    const lines = text.value.split("\n"), at = lines.slice(0, line.dataset.line - 1).join("\n").length;
    text.focus();
    text.setSelectionRange(at + (at ? 1 : 0), at + (at ? 1 : 0) + lines[line.dataset.line - 1].length);
  });
  text.addEventListener("keydown", e => {
    if (e.key !== "Tab" || e.shiftKey || e.altKey) return;
    if (text.selectionStart === 0 && text.selectionEnd === 0) return; // leave by Tab from the first place
    e.preventDefault();
    text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new InputEvent("input", {bubbles: true}));
  });
  addEventListener("beforeunload", e => { if (text.value !== text.defaultValue && !form.dataset.sent) e.preventDefault(); });
}

// The first page explains a line of a crontab while it is typed.
export function first() {
  const form = document.querySelector("[data-first]");
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await fetch(at("/?") + new URLSearchParams(new FormData(form)), {headers: {"X-Belfry": "1"}}).catch(() => null);
      if (!answer?.ok) return;
      const fresh = part(await answer.text()).getElementById("explained");
      if (fresh) document.getElementById("explained").replaceChildren(...document.importNode(fresh, true).childNodes);
    }, 150);
  });
  // What was typed before this script was loaded.
  const line = form.querySelector("input[name=line]");
  if (line.value !== line.defaultValue) line.dispatchEvent(new InputEvent("input", {bubbles: true}));
}
