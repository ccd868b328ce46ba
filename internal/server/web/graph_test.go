package web

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheDocumentOfAFlowIsCutIntoItsSteps(t *testing.T) {
	text := `kind: job
name: nightly
description: |
  run:
      - name: not_a_step
run:
  flow:
    steps:
      - name: first
        run:
          shell: |
            echo one

            echo '- name: two'
      - name: 'two'
        needs: first
    finally:
      - name: tell
        run:
          shell: echo told
policy:
  overlap: allow
`
	var got []string
	all := ""
	for _, part := range stepParts(text) {
		got = append(got, fmt.Sprint(part.Step, " ", len(part.Lines)))
		all += strings.Join(part.Lines, "\n") + "\n"
	}
	if want := "[ 8 first 6 two 2  1 tell 3  2]"; fmt.Sprint(got) != want {
		t.Errorf("the parts are %v, want %s", got, want)
	}
	if all != text {
		t.Errorf("the parts are together %q", all)
	}
}
