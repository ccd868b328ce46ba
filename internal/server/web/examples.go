package web

import (
	"slices"

	"github.com/belfry-cron/belfry/client"
	"github.com/belfry-cron/belfry/job"
)

// The examples that a click adds to a server without jobs, and another removes.
const (
	exampleNamespace = "examples"
	exampleOwner     = "belfry-examples"
	examples         = `
namespace: examples
name: hello
description: Says hello each minute
schedule: {cron: "* * * * *"}
run: {shell: 'echo "hello from $(hostname)"; date; df -h . | tail -1'}
---
namespace: examples
name: sometimes-fails
description: Fails one time in two, and is tried again after ten seconds
schedule: {cron: "*/5 * * * *"}
policy: {retry: {attempts: 2, backoff: 10s}}
run: {shell: 'echo trying; [ $(($(date +%s) / 7 % 2)) = 0 ] || { echo "error: bad luck" >&2; exit 1; }'}
---
namespace: examples
name: pipeline
description: Three steps, the last of which reads the result of the first
schedule: {cron: "0 * * * *"}
run:
  flow:
    steps:
      - {name: count, run: {shell: 'echo ''{"files": 3}'' > $BELFRY_RESULT; echo counted'}}
      - {name: work, needs: count, run: {shell: "sleep 1; echo worked"}}
      - {name: report, needs: [count, work], run: {shell: "echo {{ .Steps.count.Result.files }} files"}}
`
)

// addExamples makes the examples.
func (s *site) addExamples(p *page) error {
	list, err := job.Decode("", []byte(examples))
	if err != nil {
		return err
	}
	apply := client.Apply{Owner: exampleOwner}
	for i := range list {
		d, err := client.DocumentOf(list[i])
		if err != nil {
			return err
		}
		apply.Documents = append(apply.Documents, d)
	}
	if _, err := s.Service.Documents.Apply(p.ctx(), p.who, apply); err != nil {
		return err
	}
	s.known.Clear()
	return p.done("/", "examples_added")
}

// removeExamples deletes the examples with their mark. What was made beside them stays.
func (s *site) removeExamples(p *page) error {
	if _, err := s.Service.Documents.Apply(p.ctx(), p.who, client.Apply{Owner: exampleOwner, Prune: true, Documents: []client.Document{}}); err != nil {
		return err
	}
	s.known.Clear()
	return p.done("/", "examples_removed")
}

// HasExamples reports whether there are examples that the reader may remove.
func (l *Layout) HasExamples() bool {
	return l.CanDefine && slices.Contains(l.Namespaces, exampleNamespace)
}
