// Zooms the timeline into the stretch of time that is dragged over: to the shortest span that
// has it.
const hour = 3600000, spans = [["1h", hour], ["6h", 6 * hour], ["24h", 24 * hour]];

export function zoom(place) {
  let from = null;
  const mark = document.createElement("div");
  mark.className = "dragged";
  const drawing = () => place.querySelector("svg")?.getBoundingClientRect();
  const clamp = (x, box) => Math.max(box.left, Math.min(box.right, x));

  place.addEventListener("pointerdown", e => {
    const box = drawing();
    if (e.button || e.pointerType === "touch" || !box || e.clientX < box.left || e.clientX > box.right) return;
    from = e.clientX;
    e.preventDefault(); // of dragging a link
  });
  addEventListener("pointermove", e => {
    const box = drawing();
    if (from === null || !box || Math.abs(e.clientX - from) < 4) return;
    const ends = [from, clamp(e.clientX, box)].sort((a, b) => a - b), outer = place.getBoundingClientRect();
    mark.style.left = ends[0] - outer.left + "px";
    mark.style.width = ends[1] - ends[0] + "px";
    if (!mark.isConnected) place.append(mark);
  });
  addEventListener("pointerup", e => {
    const box = drawing(), begun = from;
    from = null;
    mark.remove();
    if (begun === null || !box || Math.abs(e.clientX - begun) < 8) return;
    const first = +place.dataset.from, at = x => first + (clamp(x, box) - box.left) / box.width * (place.dataset.to - first);
    const [a, b] = [at(begun), at(e.clientX)].sort((x, y) => x - y);
    const [span] = spans.find(([, ms]) => b - a <= ms) ?? spans.at(-1);
    const to = new URL(location);
    to.searchParams.set("span", span);
    to.searchParams.set("at", new Date((a + b) / 2).toISOString().slice(0, 19) + "Z");
    // The click that ends the drag would follow the link under it.
    addEventListener("click", c => { c.preventDefault(); c.stopPropagation(); }, {capture: true, once: true});
    location.href = to;
  });
}
