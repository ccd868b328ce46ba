package web_test

import (
	"strings"
	"testing"
)

func TestTheKitShowsGraphPaletteMenusAndLoading(t *testing.T) {
	w := newWorld(t)
	body := w.login("vera").ask("GET", "/ui/kit", nil).Body.String()
	for _, part := range []string{
		`class="g-node ok"`, `class="g-node fail"`, `class="g-node run on"`, `class="g-node todo"`, `class="more"`, `g-edge crit`, `class="sketch"`, `data-by="0"`,
		`role="option" aria-selected="true">shop/price-import`, `<div class="pop list"><a href="/ui/kit" aria-current="page">`, `<tr class="on">`, `<tr class="cursor">`,
		`class="skel"`, `class="note fail"`, `for="kit-until"`, `class="phases"`, `class="empty"`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the kit has no %s", part)
		}
	}
}
