package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/belfry-cron/belfry/client"
)

// stepsShownMax is the number of items of a step that are listed: successful ones are omitted
// first, so that failures of a large fan-out are visible.
const stepsShownMax = 50

// stepTable writes the progress of a flow's steps, with their items below them.
func stepTable(w io.Writer, env Env, s style, r *client.Run) {
	if len(r.Steps) == 0 {
		return
	}
	var rows [][]string
	line := func(name string, st *client.StepState) {
		rows = append(rows, []string{name, stateOfStep(st), stepTook(env, st), reasonOfStep(st)})
	}
	for i := range r.Steps {
		st := &r.Steps[i]
		line(st.Name, st)
		shown, left := 0, 0
		for k := range st.Items {
			it := &st.Items[k]
			if it.State == "succeeded" && len(st.Items) > stepsShownMax || shown == stepsShownMax {
				left++
				continue
			}
			shown++
			line(strings.TrimRight(fmt.Sprintf("  %s/%d %s", st.Name, k, it.ItemValue), " "), it)
		}
		if left > 0 {
			rows = append(rows, []string{fmt.Sprintf("  and %d more", left), "", "", ""})
		}
	}
	fmt.Fprintln(w)
	table(w, s, []string{"STEP", "STATE", "TOOK", "REASON"}, rows)
}

// stateOfStep describes the state of a step, and the kind of its failure.
func stateOfStep(st *client.StepState) string {
	if st.State == "failed" && st.Outcome != "" {
		return strings.ReplaceAll(string(st.Outcome), "_", " ")
	}
	return st.State
}

// reasonOfStep explains the state of a step, or what it waits for.
func reasonOfStep(st *client.StepState) string { return orDash(cmp.Or(st.Waits, st.Reason)) }

func stepTook(env Env, st *client.StepState) string {
	switch {
	case st.Started.IsZero():
		return "-"
	case st.Ended.IsZero():
		return shortDuration(env.Now().Sub(st.Started))
	}
	return shortDuration(st.Ended.Sub(st.Started))
}
