// The texts of scripts, which the page brings in its language.
const place = document.getElementById("words");
export const words = place ? JSON.parse(place.dataset.words) : {};

export function say(key, values) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
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
