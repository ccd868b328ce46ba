//go:build servers

package web

import (
	"strings"
	"sync"
	"testing"
)

// sentences is a script that lists the runs of three or more English words, and the raw instants in UTC, that a page shows or
// reads out, outside of output, documents and commands.
const sentences = `(() => {
	const found = new Set(), add = text => { for (const m of text?.matchAll(/(?<![\w/-])(?:belfry [a-z -]+|([A-Za-z][a-z']*[a-z](?: [a-z][a-z'-]*){2,}))/g) ?? []) if (m[1]) found.add(m[1]); };
	const skipped = "script, style, noscript, pre, code, textarea, kbd, .log, .painted, [data-words]";
	const texts = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
	for (let node; (node = texts.nextNode());) if (!node.parentElement.closest(skipped)) {
		add(node.data);
		for (const m of node.data.matchAll(/\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*Z/g)) found.add(m[0]);
	}
	for (const e of document.querySelectorAll("[title], [aria-label], [placeholder]")) if (!e.closest(skipped)) for (const name of ["title", "aria-label", "placeholder"]) add(e.getAttribute(name));
	add(document.querySelector("[data-words]")?.dataset.words);
	return [...found];
})()`

// nightText is all that the night itself says, in lower case: names, descriptions, reasons of people, and output.
var nightText = sync.OnceValue(func() string {
	own := strings.Builder{}
	own.WriteString(nightDocuments() + nightPause + nightSkipped + nightNote + nightNodes[len(nightNodes)-1] + " " + nightDrained + nightReason)
	own.WriteString(" no such file or directory") // of the system
	for i := range night {
		own.WriteString(" " + night[i].line)
	}
	return strings.ToLower(strings.Join(strings.Fields(own.String()), " "))
})

// saysNoEnglish reports the English of a page in Chinese, except what the night itself says.
func (b *tab) saysNoEnglish(path string) {
	b.t.Helper()
	for _, sentence := range value[[]string](b, sentences) {
		if !strings.Contains(nightText(), strings.ToLower(sentence)) {
			b.t.Errorf("%s in Chinese says %q", path, sentence)
		}
	}
}

// TestEachPageInEveryThemeLanguageAndSize looks at the other pages.
func TestNoRefusalInChineseSaysAnEnglishSentence(t *testing.T) {
	t.Parallel()
	on, _ := nightOf(t)
	b := newStranger(t, on)
	b.login()
	b.looks("light", "zh")
	for _, path := range []string{"/jobs/billing/invoice-close/backfill?from=2026-11-01T08:00&to=2026-11-01T10:00", "/runs/nothing", "/jobs/no/job", "/runs?from=never"} {
		b.open(path)
		b.until("the page in Chinese", `document.readyState === "complete" && document.documentElement.lang === "zh"`)
		b.saysNoEnglish(path)
	}
}
