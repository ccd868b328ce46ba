package client

import "github.com/belfry-cron/belfry/job"

// Why is a reason: a sentence for people, and a code with arguments for programs.
type Why struct {
	Reason     string          `json:"reason,omitempty" doc:"Why it waits, or ended so, in English; while a step waits for an approval, what is asked."`
	ReasonCode string          `json:"reason_code,omitempty" doc:"The same for programs: a code of docs/reasons.md. What a command, a service or a person has said is text."`
	ReasonArgs *job.ReasonArgs `json:"reason_args,omitempty" doc:"The arguments of the code by name: instants as in RFC 3339, durations such as 1m30s, a reason within it as an object with code and args."`
}

// WhyOf returns a reason in its public form.
func WhyOf(r job.Reason) Why {
	code, args := r.For()
	return Why{r.String(), code, args}
}

// Value returns the reason of [WhyOf].
func (w Why) Value() job.Reason { return w.ReasonArgs.Reason(w.Reason, w.ReasonCode) }

// Failure is a failure in the words of the work.
type Failure struct {
	Cause            string `json:"cause,omitempty" doc:"What the work said about its failure: the last line of its standard error or, without one, of its output, or one of the last five that names an error; the status and the first line of the answer to a request; the error of a handler; the message of an executor. At most 300 characters, masked like output. Unknown for what ended before version 21 of the store."`
	CauseFingerprint string `json:"cause_fingerprint,omitempty" doc:"The same for failures of one kind: of the cause, or of the reason without one, with numbers, times, ids, paths, hosts and quoted texts left out."`
}

// FailureOf returns the failure of an attempt in its public form.
func FailureOf(a *job.Attempt) Failure { return Failure{a.Cause, a.Fingerprint.String()} }
