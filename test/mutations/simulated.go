package main

// simulated are faults that both simulations must find, the core's and the whole nodes'.
var simulated = inSimulations([]fault{
	{windows, "a run due in a second whose number seven divides passes", "internal/decide/engine/window.go",
		"if b.facts.windows.empty() ||", "if r.Due.Unix()%7 == 0 || b.facts.windows.empty() ||", "", ""},
	{handedOver, "an attempt keeps the session of its node", "internal/decide/engine/handover.go",
		"m.Session = job.ID{}\n\tb.save(m)\n\treturn store.Handed", "b.save(m)\n\treturn store.Handed", "", ""},
	{handedOver, "an attempt without a session is reaped", "internal/decide/engine/handover.go",
		"m.Session = job.ID{}\n\tb.save(m)\n\treturn store.Handed", "m.Session = job.ID{1}\n\tb.save(m)\n\treturn store.Handed", "", ""},
	{handedOver, "a result ends an attempt without its token", "internal/decide/engine/finish.go",
		"m.Attempt == a.Number && m.Token == a.Token", "m.Attempt == a.Number", "", ""},
	{handedOver, "an attempt is sent twice: a retry keeps its number", "internal/decide/engine/finish.go",
		"m.Attempt++\n", "\n", "", ""},
	{handedOver, "a keeper takes what runs for over, and asks after it no more", "internal/decide/engine/handover.go",
		"runs(m, h.Attempt) && isHandedOver(&m.Run)", "false", "", ""},
	{handedOver, "an attempt times out before its timeout", "internal/server/callback/callback.go",
		"left := o.Sent.Add(timeout).Sub(o.Now)", "left := o.Sent.Add(timeout / 2).Sub(o.Now)", "", ""},
})

// inSimulations returns each fault twice, with the test of either simulation.
func inSimulations(list []fault) (both []fault) {
	for _, f := range list {
		for _, of := range []struct{ test, where string }{{"^TestCore$", "the core"}, {"^TestNodes$", "whole nodes"}} {
			one := f
			one.what, one.pkg, one.test = f.what+", in the simulation of "+of.where, "./internal/check/sim", of.test
			both = append(both, one)
		}
	}
	return both
}
