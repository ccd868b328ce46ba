//go:build servers

package web

import "os"

// whole makes the layout test look at every width, rule and row in both languages, as make test-long does.
var whole = os.Getenv("BELFRY_WEB") == "whole"

// widthsOf are the widths at which pages are laid out in a language: in English, whose words are longest, one in each wide
// range of the style sheet; all are those of a phone, a screen of 1440 px at 200 %, a tablet, a window on each side of
// the one where a page has a single column, a screen and a large one.
func widthsOf(lang string) []int64 {
	switch {
	case whole:
		return []int64{390, zoomed, 820, 1090, 1300, 1440, 1920}
	case lang == "en":
		return []int64{390, zoomed, 820, 1300, 1440, 1920}
	}
	return []int64{390, 1440}
}

// faults is a script that lists what is wrong with the layout of a page: it scrolls sideways, a text lies
// over another one or leaves its panel, its cell or its button, a table is wider than its panel, or a text is cut and
// the whole is nowhere.
const faults = `(() => {
	const list = [], wide = document.documentElement.clientWidth, said = (what, e, more) => list.push(what + ": " + (e.textContent.trim().slice(0, 60) || e.outerHTML.slice(0, 60)) + " <" + e.tagName.toLowerCase() + "." + (e.getAttribute("class") ?? "") + "> in ." + (e.parentElement?.getAttribute("class") ?? e.parentElement?.tagName) + (more ?? ""));
	if (document.documentElement.scrollWidth > wide) {
		const e = [...document.querySelectorAll("main *")].find(e => e.checkVisibility() && e.getBoundingClientRect().right > wide + 1 && !e.closest(".scroll-x, pre, .cmd, .log, .tabs, .seg, svg"));
		said("scrolls sideways to " + document.documentElement.scrollWidth, e ?? document.body);
	}
	const boxes = [], range = document.createRange(), walker = document.createTreeWalker(document.querySelector("main") ?? document.body, NodeFilter.SHOW_TEXT);
	const styles = new Map(), style = e => { if (!styles.has(e)) styles.set(e, getComputedStyle(e)); return styles.get(e); };
	const out = new Set();
	for (let node; (node = walker.nextNode());) {
		const text = node.data.trim(), e = node.parentElement;
		if (!text || e.closest("script, style, template, textarea, select, option, title, desc, datalist, .sr, dialog, .skip, .painted, [hidden], .stalebar") || !e.checkVisibility({visibilityProperty: true})) continue;
		range.selectNodeContents(node);
		for (const r of range.getClientRects()) {
			if (r.width < 2 || r.height < 2) continue;
			let box = {left: r.left, right: r.right, top: r.top + r.height * .2, bottom: r.bottom - r.height * .2, e}, hidden = false, cut = null;
			for (let a = e; a && a !== document.body; a = a.parentElement) {
				const s = style(a);
				if (s.position === "fixed") { hidden = true; break; }
				if (s.overflowX === "visible" && s.overflowY === "visible" || s.display === "inline" || a.tagName === "svg" && s.overflowX === "visible") continue;
				const c = a.getBoundingClientRect();
				if (s.overflowX !== "visible" && (box.right > c.right + 1.5 || box.left < c.left - 1.5) && !/auto|scroll/.test(s.overflowX)) cut ??= a;
				if (s.overflowY !== "visible" && box.bottom > c.bottom + 1 && !/auto|scroll/.test(s.overflowY)) cut ??= a;
				box = {...box, left: Math.max(box.left, c.left), right: Math.min(box.right, c.right), top: Math.max(box.top, c.top), bottom: Math.min(box.bottom, c.bottom)};
				if (box.right - box.left < 2 || box.bottom - box.top < 2) { hidden = true; break; }
			}
			if (cut && !out.has(cut)) {
				out.add(cut);
				const dots = style(cut).textOverflow === "ellipsis" || style(cut).webkitLineClamp !== "none";
				if (!dots) said("cut without an ellipsis", cut, " " + JSON.stringify([Math.round(r.right), Math.round(cut.getBoundingClientRect().right)]));
				else if (!cut.closest("[title]") && !cut.querySelector("[title]")) said("cut without a title", cut);
			}
			if (hidden) continue;
			boxes.push(box);
			const room = e.closest("td, th, .btn, .tag, .pill, .tok, .panel, .note, .g-node"), in_ = room?.getBoundingClientRect();
			if (room && room.tagName !== "g" && !out.has(room) && (box.right > in_.right + 1.5 || box.left < in_.left - 1.5)) {
				out.add(room);
				said("leaves its " + (room.getAttribute("class") ?? room.tagName), e, " by " + Math.round(Math.max(box.right - in_.right, in_.left - box.left)) + " px");
			}
		}
	}
	for (const table of document.querySelectorAll(".panel > table")) if (style(table.parentElement).overflowX === "visible" && table.getBoundingClientRect().right > table.parentElement.getBoundingClientRect().right + 1) said("wider than its panel", table);
	boxes.sort((a, b) => a.top - b.top);
	const clash = new Set();
	for (let i = 0; i < boxes.length; i++) {
		const a = boxes[i];
		for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j++) {
			const b = boxes[j];
			if (a.e === b.e || a.e.contains(b.e) || b.e.contains(a.e)) continue;
			if (Math.min(a.right, b.right) - Math.max(a.left, b.left) < 2 || Math.min(a.bottom, b.bottom) - b.top < 2) continue;
			if (a.e.closest(".pop") || b.e.closest(".pop") || clash.has(a.e)) continue;
			clash.add(a.e);
			said("over another text", a.e, ": " + b.e.textContent.trim().slice(0, 40) + " <" + b.e.tagName.toLowerCase() + "." + (b.e.getAttribute("class") ?? "") + ">");
		}
	}
	return list.slice(0, 12);
})()`

// shiftMost is the layout shift that a page must stay below.
const shiftMost = 0.05

// shifted is a script that sums the layout shifts of a page up to now, after its parts were read again once.
const shifted = `(async () => {
	const {refresh} = await import(document.querySelector("script[type=module]").src.replace("belfry.js", "live.js"));
	await refresh();
	await new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)));
	let sum = 0;
	const seen = new PerformanceObserver(() => {});
	seen.observe({type: "layout-shift", buffered: true});
	await new Promise(go => requestAnimationFrame(() => setTimeout(go))); // buffered entries come in a task of their own
	for (const e of seen.takeRecords()) if (!e.hadRecentInput) sum += e.value;
	return sum;
})()`

// laidOut reports what is wrong with the layout of a page in each width.
func (b *tab) laidOut(path, lang string) {
	b.t.Helper()
	for _, width := range widthsOf(lang) {
		b.width(width)
		for _, fault := range value[[]string](b, faults) {
			b.t.Errorf("%s in %s at %d px: %s", path, lang, width, fault)
		}
	}
}
