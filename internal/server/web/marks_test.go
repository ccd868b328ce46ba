package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAProblemIsSnoozedAndWokenOnTheOverview(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.now = w.now.Add(time.Minute)
	b := w.login("ann")
	const about = "shop/price-import"
	b.shows("/", `name="about" value="shop/price-import"`, `<button class="btn s" name="until" value="version">the next version</button>`, "Take")
	if answer := b.send("/attention/snooze", "about", about, "until", "morning"); answer.Code != http.StatusSeeOther || !strings.Contains(answer.Header().Get("Location"), "said=marked_snooze") {
		t.Fatalf("a snooze is answered with %d, %s", answer.Code, answer.Header().Get("Location"))
	}
	b.shows("/?said=marked_snooze&about="+about, "Snoozed shop/price-import.", `action="/attention/wake?about=shop%2Fprice-import"`, "snoozed by ann until", "1 snoozed")
	if answer := b.send("/attention/wake?about=" + about); answer.Code != http.StatusSeeOther { // the button Undo
		t.Errorf("its undoing is answered with %d", answer.Code)
	}
	b.send("/attention/take", "about", about)
	b.send("/attention/note", "about", about, "note", "ask <the> vendor")
	b.shows("/", "ann has it", "ann: ask &lt;the&gt; vendor", "Release")
	if page := b.page("/"); strings.Contains(page, "1 snoozed") {
		t.Error("it is snoozed after it was woken")
	}
	for until, code := range map[string]int{"": http.StatusUnprocessableEntity, "-1h": http.StatusUnprocessableEntity, "soon": http.StatusUnprocessableEntity, "cause": http.StatusSeeOther} {
		if answer := b.send("/attention/snooze", "about", about, "until", until); answer.Code != code {
			t.Errorf("until %q it is answered with %d", until, answer.Code)
		}
	}
}
