package client

import "github.com/belfry-cron/belfry/job"

// Why is a reason: a sentence for people, and a code with arguments for programs.
type Why struct {
	Reason     string          `json:"reason,omitempty" doc:"Why it waits, or ended so, in English; while a step waits for an approval, what is asked."`
	ReasonCode string          `json:"reason_code,omitempty" doc:"The same for programs: a code of docs/reasons.md. What a command, a service or a person has said is text."`
	ReasonArgs *job.ReasonArgs `json:"reason_args,omitempty" doc:"The arguments of the code by name: instants as in RFC 3339, durations such as 1m30s, a reason within it as an object with code and args."`
}

// WhyOf returns a reason as clients see it.
func WhyOf(r job.Reason) Why {
	code, args := r.For()
	return Why{r.String(), code, args}
}

// Value returns the reason of WhyOf.
func (w Why) Value() job.Reason { return w.ReasonArgs.Reason(w.Reason, w.ReasonCode) }
