// Zooms the graph of a flow by its buttons, and by + - 0 while it has the focus. The size is a
// property of the place, so that a graph which is read again keeps it.
const least = 0.3, most = 2, step = 1.25;
const readable = 0.75; // a graph that is smaller when it fits begins in its own size

export function graph(place) {
  let size = 1;
  const set = to => {
    const middle = (place.scrollLeft + place.clientWidth / 2) / size;
    size = Math.max(least, Math.min(most, to));
    place.style.setProperty("--zoom", size);
    place.scrollLeft = middle * size - place.clientWidth / 2;
  };
  const fit = () => {
    const look = getComputedStyle(place), svg = place.querySelector("svg");
    return Math.min(1, (place.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight)) / svg.viewBox.baseVal.width);
  };
  const by = {"+": () => set(size * step), "-": () => set(size / step), "0": () => set(fit())};
  by["="] = by["+"];
  const panel = place.closest("section");
  panel.addEventListener("click", e => by[e.target.closest("[data-by]")?.dataset.by]?.());
  panel.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || !by[e.key]) return;
    e.preventDefault();
    by[e.key]();
  });
  if (fit() >= readable) set(fit());
  const chosen = place.querySelector(".g-node.on, .g-node.run")?.getBoundingClientRect(), box = place.getBoundingClientRect();
  if (chosen && chosen.right > box.right) place.scrollLeft += chosen.left - box.left - box.width / 2;
  if (chosen && chosen.bottom > box.bottom) place.scrollTop += chosen.top - box.top - box.height / 2;
  place.dataset.ready = "1";
}
