package reason

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const page = "../../docs/reasons.md"

// The page of the codes is written from the catalogue.
func TestThePageOfReasonsIsUpToDate(t *testing.T) {
	want := pageOf(All())
	got, err := os.ReadFile(page)
	if os.Getenv("UPDATE") != "" {
		err, got = os.WriteFile(page, []byte(want), 0o644), []byte(want)
	}
	if err != nil || string(got) != want {
		t.Fatalf("docs/reasons.md is not what the catalogue says, %v; after UPDATE=1 go test ./internal/reason look at its difference", err)
	}
}

func pageOf(codes []*Code) string {
	var b strings.Builder
	b.WriteString(`# Reasons of runs

Why a run waits, or ended as it did, is a code with arguments. The API has it as ` + "`reason`" + ` (in English, with instants in
UTC), ` + "`reason_code` and `reason_args`" + `: scripts and alerts go by the code, which stays the same when the sentence is
reworded. Pages say it in the language and the time zone of the reader. Expectations that are not met (` + "`unmet_code`" + `),
pauses (` + "`pause_code`" + `), attention (` + "`text_code`" + `) and the details of changes (` + "`detail_code`" + ` of the audit and of events) use the
same codes.

Of the arguments, instants are written as in RFC 3339, durations such as ` + "`1m30s`" + `, and a reason within a reason is an object
with ` + "`code` and `args`" + `. What stands in brackets is there only if its argument is. Runs that ended before Belfry had codes
have the code ` + "`text`" + `.

## The cause of a failure

The reason is what Belfry says: *exit status 1*. The cause is what the work said: *feed.csv: 0 rows, expected at least 10,000*.
Pages, ` + "`belfry run list`, `belfry run get`, `belfry attention`" + `, the log and the API (` + "`cause`" + `) show it behind the reason.

| Work | Cause |
|---|---|
| a command | the last line of its standard error that has text; without one, of its output. If one of the four lines before it names an error and it does not, that one |
| a request | the status and the first line of the answer |
| a handler | the first line of its error |
| an executor of XXL-JOB | its message; of a stack trace the innermost cause |
| a flow | the cause of the first step that failed |
| work with ` + "`callback` or `external`" + ` | the last line of the reported output |

It is made once, when the attempt ends, by the node that has the output: at most 300 characters, without colors and control
characters, and masked like the output. ` + "`cause_fingerprint`" + ` is the same for failures of one kind: numbers, times, ids,
hexadecimal digits, paths, hosts and quoted texts do not count. Without a cause it is the fingerprint of the reason.

## The codes

| Code | English | 中文 | What to do |
|---|---|---|---|
`)
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, c := range codes {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s %s |\n", c.Name, cell.Replace(c.English), cell.Replace(c.Chinese), cell.Replace(c.Do), cell.Replace(c.DoInChinese))
	}
	return b.String()
}
