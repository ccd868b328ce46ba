// The texts of scripts, which the page brings in its language.
const place = document.getElementById("words");
export const words = place ? JSON.parse(place.dataset.words) : {};

export function say(key, values) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

// make makes an element with what is in it.
export function make(tag, set, ...inside) {
  const e = Object.assign(document.createElement(tag), set);
  e.append(...inside);
  return e;
}

// send sends a form to an address, as a button of the page would.
export function send(address, fields) {
  const all = {form: document.querySelector("input[name=form]").value, back: location.pathname + location.search, ...fields};
  const form = make("form", {method: "post", action: address}, ...Object.entries(all).map(([name, value]) => make("input", {type: "hidden", name, value})));
  document.body.append(form);
  form.requestSubmit();
}

// A duration as the server says it: two units at most.
export function coarse(ms) {
  const [d, h, min, s] = (words.units ?? "d h min s").split(" ");
  const n = Math.floor(ms / 1000);
  const two = (a, first, b, second) => b ? `${a} ${first} ${b} ${second}` : `${a} ${first}`;
  if (n < 60) return `${n} ${s}`;
  if (n < 3600) return `${Math.floor(n / 60)} ${min}`;
  if (n < 86400) return two(Math.floor(n / 3600), h, Math.floor(n % 3600 / 60), min);
  return two(Math.floor(n / 86400), d, Math.floor(n % 86400 / 3600), h);
}
