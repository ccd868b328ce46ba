// The editor: what is typed is checked by the server, which also keeps form and text in step.
import {part} from "./live.js";

export function edit() {
  const form = document.querySelector("[data-edit]"), text = form.querySelector("[data-document]");
  let timer, asked = 0;

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
      // What was sent is in the text by now, also of the field that is being typed in.
      form.elements["was." + field.name.slice(6)].value = other.value;
      const box = field.closest(".field"), error = other.closest(".field").querySelector(".err");
      box.classList.toggle("bad", Boolean(error));
      box.querySelector(".err")?.remove();
      if (error) box.append(document.importNode(error, true));
    }
  }
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 150); });
  form.dataset.ready = "1"; // what is typed from now on is checked
  form.addEventListener("click", e => {
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
      const answer = await fetch("/?" + new URLSearchParams(new FormData(form)), {headers: {"X-Belfry": "1"}}).catch(() => null);
      if (!answer?.ok) return;
      const fresh = part(await answer.text()).getElementById("explained");
      if (fresh) document.getElementById("explained").replaceChildren(...document.importNode(fresh, true).childNodes);
    }, 150);
  });
}
