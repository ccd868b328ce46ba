package service

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
	"github.com/belfry-cron/belfry/store"
)

func TestLanesCountByJobWithTroubleFirst(t *testing.T) {
	b := newBench(t)
	s := b.serviceOn(Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		b.put(s, `{"name": "`+name+`", "labels": {"team": "`+name+`"}, "run": {"shell": "true"}}`)
	}
	begin := b.clock().Truncate(time.Hour).Add(time.Hour)
	b.pass(begin.Sub(b.clock()))
	b.ends(s, "a", job.OutcomeSucceeded)
	b.ends(s, "b", job.OutcomeFailed)
	b.ends(s, "b", job.OutcomeSucceeded)
	b.ends(s, "c", job.OutcomeSucceeded)
	b.ends(s, "c", job.OutcomeFailed)
	read := func(who Caller, q client.LanesQuery) (text string, lanes client.Lanes) {
		t.Helper()
		q.From, q.To = begin, begin.Add(time.Hour)
		lanes, err := s.Stats.Lanes(t.Context(), who, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lanes.Items {
			text += fmt.Sprintf("%s %d/%d/%d", l.Job, l.Failures, l.Failed, l.Runs)
			for _, bucket := range l.Buckets {
				text += fmt.Sprint(" ", bucket.Start.Sub(begin), bucket.Outcomes)
			}
			text += "; "
		}
		return text, lanes
	}
	want := []string{
		"default/c 1/1/2 0s map[failed:1 succeeded:1]; ", "default/b 0/1/2 0s map[failed:1 succeeded:1]; ", "default/a 0/0/1 0s map[succeeded:1]; ", "default/d 0/0/0; ",
	}
	all, lanes := read(admin, client.LanesQuery{})
	if all != want[0]+want[1]+want[2]+want[3] || lanes.Jobs != 4 || lanes.Step != 600 || lanes.Next != "" {
		t.Errorf("the lanes are %s (%+v)", all, lanes)
	}
	first, lanes := read(admin, client.LanesQuery{PageSize: 3})
	rest, _ := read(admin, client.LanesQuery{PageSize: 3, PageToken: lanes.Next})
	if first+rest != all || rest != want[3] {
		t.Errorf("page by page the lanes are %s and %s", first, rest)
	}
	if text, _ := read(admin, client.LanesQuery{Labels: map[string]string{"team": "b"}}); text != want[1] {
		t.Errorf("of a label they are %s", text)
	}
	if text, _ := read(Caller{Name: "x", Role: store.RoleViewer, Namespace: "other"}, client.LanesQuery{}); text != "" {
		t.Errorf("a caller of another namespace sees %s", text)
	}
	_, err := s.Stats.Lanes(t.Context(), admin, client.LanesQuery{From: begin, To: begin.Add(time.Hour), Step: time.Second})
	var refused *Error
	if !errors.As(err, &refused) {
		t.Errorf("too many buckets are answered with %v", err)
	}
}

// What is over is read once, and what ends since is added.
func TestLanesReadWhatIsOverOnce(t *testing.T) {
	b := newBench(t)
	history := &counting{Store: b.store}
	s := b.serviceOn(Config{Store: history})
	for _, name := range []string{"a", "b"} {
		b.put(s, `{"name": "`+name+`", "run": {"shell": "true"}}`)
	}
	begin := b.clock().Truncate(time.Hour).Add(time.Hour)
	b.pass(begin.Sub(b.clock()))
	b.ends(s, "a", job.OutcomeSucceeded)
	b.ends(s, "b", job.OutcomeFailed)
	read := func(want string) (asked int) {
		t.Helper()
		before := history.asked
		lanes, err := s.Stats.Lanes(t.Context(), admin, client.LanesQuery{From: begin})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, l := range lanes.Items {
			text += fmt.Sprintf("%s %d/%d", l.Job, l.Failed, l.Runs)
			for _, bucket := range l.Buckets {
				text += fmt.Sprint(" ", bucket.Start.Sub(begin), bucket.Outcomes)
			}
			text += "; "
		}
		if text != want {
			t.Errorf("the lanes are %s, want %s", text, want)
		}
		return history.asked - before
	}
	b.pass(time.Hour)
	first := "default/b 1/1 0s map[failed:1]; default/a 0/1 0s map[succeeded:1]; "
	if n := read(first); n != 3 {
		t.Errorf("at first history was read %d times, want what is new, the totals and the columns", n)
	}
	if n := read(first); n != 1 {
		t.Errorf("afterwards it was read %d times, want what is new", n)
	}
	b.ends(s, "a", job.OutcomeSucceeded)
	column := b.clock().Sub(begin).Truncate(10 * time.Minute)
	again := fmt.Sprintf("default/b 1/1 0s map[failed:1]; default/a 0/2 0s map[succeeded:1] %s map[succeeded:1]; ", column)
	if n := read(again); n != 1 {
		t.Errorf("with a new run it was read %d times", n)
	}
	// A late result may have changed what is over.
	b.pass(keptFor)
	if n := read(again); n != 3 {
		t.Errorf("after keptFor it was read %d times", n)
	}
}
