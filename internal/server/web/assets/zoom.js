// Selects the stretch of time that is dragged over in a chart: the timeline zooms to the shortest span
// that has it, and other pages show from its beginning to its end.
const hour = 3600000, spans = [["1h", hour], ["6h", 6 * hour], ["24h", 24 * hour]];
const stamp = ms => new Date(ms).toISOString().slice(0, 19) + "Z";

export function zoom(place) {
  let from = null;
  const mark = document.createElement("div");
  mark.className = "dragged";
  // The plot is the part of the drawing that has a scale of time.
  const plot = () => {
    const svg = place.querySelector("svg"), box = svg?.getBoundingClientRect();
    if (!box) return null;
    const scale = box.width / svg.viewBox.baseVal.width;
    const left = box.left + scale * (place.dataset.left ?? 0), right = box.right - scale * (place.dataset.right ?? 0);
    return {left, right, width: right - left};
  };
  const clamp = (x, box) => Math.max(box.left, Math.min(box.right, x));

  place.addEventListener("pointerdown", e => {
    const box = plot();
    if (e.button || e.pointerType === "touch" || !box || e.clientX < box.left || e.clientX > box.right) return;
    from = e.clientX;
    e.preventDefault(); // of dragging a link
  });
  addEventListener("pointermove", e => {
    const box = plot();
    if (from === null || !box || Math.abs(e.clientX - from) < 4) return;
    const ends = [from, clamp(e.clientX, box)].sort((a, b) => a - b), outer = place.getBoundingClientRect();
    mark.style.left = ends[0] - outer.left + place.scrollLeft + "px";
    mark.style.width = ends[1] - ends[0] + "px";
    if (!mark.isConnected) place.append(mark);
  });
  addEventListener("pointerup", e => {
    const box = plot(), begun = from;
    from = null;
    mark.remove();
    if (begun === null || !box || Math.abs(e.clientX - begun) < 8) return;
    const first = +place.dataset.from, step = +place.dataset.step || 1;
    const at = x => first + (clamp(x, box) - box.left) / box.width * (place.dataset.to - first);
    const [a, b] = [at(begun), at(e.clientX)].sort((x, y) => x - y);
    const to = new URL(location), set = (name, value) => to.searchParams.set(name, value);
    if (place.dataset.zoom === "range") {
      // Whole columns: what is counted in one is selected together.
      set("from", stamp(first + Math.floor((a - first) / step) * step));
      set("to", stamp(first + Math.ceil((b - first) / step) * step));
      for (const name of ["range", "page"]) to.searchParams.delete(name);
    } else {
      set("span", (spans.find(([, ms]) => b - a <= ms) ?? spans.at(-1))[0]);
      set("at", stamp((a + b) / 2));
    }
    // The click that ends the drag would follow the link under it.
    addEventListener("click", c => { c.preventDefault(); c.stopPropagation(); }, {capture: true, once: true});
    location.href = to;
  });
}
