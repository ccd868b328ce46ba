//go:build servers

package web

import (
	"slices"
	"strings"
	"testing"
)

// sentences is a script that lists the runs of three or more English words that a page shows or reads out, outside of
// output, documents and commands.
const sentences = `(() => {
	const found = new Set(), add = text => { for (const m of text?.matchAll(/(?<![\w/-])(?:belfry [a-z -]+|([A-Za-z][a-z']*[a-z](?: [a-z][a-z'-]*){2,}))/g) ?? []) if (m[1]) found.add(m[1]); };
	const skipped = "script, style, noscript, pre, code, textarea, kbd, .log, .painted, [data-words]";
	const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
	for (let node; (node = texts.nextNode());) if (!node.parentElement.closest(skipped)) add(node.data);
	for (const e of document.querySelectorAll("[title], [aria-label], [placeholder]")) if (!e.closest(skipped)) for (const name of ["title", "aria-label", "placeholder"]) add(e.getAttribute(name));
	add(document.querySelector("[data-words]")?.dataset.words);
	return [...found];
})()`

// Each page of the night in Chinese has no English but what the night itself says: names, descriptions, reasons of
// people, and output.
func TestNoPageInChineseSaysAnEnglishSentence(t *testing.T) {
	t.Parallel()
	on, list := nightOf(t)
	own := strings.Builder{}
	own.WriteString(nightDocuments() + nightPause + nightSkipped)
	own.WriteString(" no such file or directory") // of the system
	for i := range night {
		own.WriteString(" " + night[i].line)
	}
	text := strings.ToLower(strings.Join(strings.Fields(own.String()), " "))
	b := newStranger(t, on)
	b.login()
	b.width(1440)
	b.looks("light", "zh")
	for _, path := range slices.Concat(list, []string{"/jobs/billing/invoice-close/backfill?from=2026-11-01T08:00&to=2026-11-01T10:00", "/runs/nothing", "/jobs/no/job", "/runs?from=never"}) {
		b.open(path)
		b.until("the page in Chinese", `document.readyState === "complete" && document.documentElement.lang === "zh"`)
		for _, sentence := range value[[]string](b, sentences) {
			if !strings.Contains(text, strings.ToLower(sentence)) {
				t.Errorf("%s says %q", path, sentence)
			}
		}
	}
}
