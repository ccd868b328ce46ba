package web

import (
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/internal/server/i18n"
)

// The sentence of the overview says that all is well only if nothing needs a person, is snoozed or keeps alarms from
// arriving.
func TestTheSentenceNeverHidesAlarmsThatDoNotArrive(t *testing.T) {
	snoozed := &client.Snooze{By: "ann"}
	job := client.Attention{Kind: client.AttentionFailing, Job: "shop/feed"}
	alarms := client.Attention{Kind: client.AttentionAlarms}
	asleep := func(a client.Attention) client.Attention { a.Snoozed = snoozed; return a }
	for _, c := range []struct {
		list []client.Attention
		want string
	}{
		{nil, "Everything is as it should be."},
		{[]client.Attention{job}, "One job needs you. Everything else is as it should be."},
		{[]client.Attention{alarms, job}, "One job and the alarm path need you."},
		{[]client.Attention{job, asleep(alarms)}, "One job needs you."},
		{[]client.Attention{{Kind: client.AttentionSource, Source: "git"}, job}, "One job and one repository need you. Everything else is as it should be."},
		{[]client.Attention{asleep(job)}, "Nothing needs you but what is snoozed."},
		{[]client.Attention{asleep(alarms), asleep(job)}, "Nothing needs you but what is snoozed, and alarms do not arrive."},
	} {
		p := &page{lang: i18n.English}
		if got := p.lead(c.list); got != c.want {
			t.Errorf("of %d problems it says %q, want %q", len(c.list), got, c.want)
		}
		if p.lang = i18n.Chinese; strings.ContainsAny(p.lead(c.list), "\uFFFD") {
			t.Errorf("in Chinese it is torn: %q", p.lead(c.list))
		}
	}
}
