package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belfry-cron/belfry/internal/cli"
)

// pictured are the commands in the picture of cron expressions.
var pictured = []string{
	"belfry next '30 2 * * *' --tz Europe/Berlin -n 4",
	"belfry next '0 9 * * MON-FIR'",
}

// picturedAt is the Friday before a change to summer time.
var picturedAt = time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)

func TestPictureShowsTheOutputOfCommands(t *testing.T) {
	const name = "docs/belfry-next.svg"
	var lines []string
	for _, command := range pictured {
		var out bytes.Buffer
		cli.Run(context.Background(), cli.Env{
			Stdout: &out, Stderr: &out, StdoutIsTerminal: true, StderrIsTerminal: true,
			Getenv: func(string) string { return "" },
			Now:    func() time.Time { return picturedAt },
		}, split(command)[1:])
		lines = append(lines, prompt+command)
		lines = append(lines, strings.Split(out.String(), "\n")...)
	}
	had, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil && os.Getenv("UPDATE") == "" {
		t.Fatal(err)
	}
	expect(t, name, string(had), picture("belfry next in a terminal", lines))
}

// prompt is in front of each command, in green.
const prompt = "\x1b[32m$\x1b[0m "

// screen is the content of a script's terminal.
type screen struct{ lines []string }

type screenKey struct{}

// runID is the id of a run, which is another each time.
var runID = regexp.MustCompile(`01[0-9A-HJKMNP-TV-Z]{24}`)

// shows is belfry on a terminal that is in a picture. The last words may be an exit code,
// as => 8.
func shows(ts *testscript.TestScript, _ bool, args []string) {
	want := cli.ExitOK
	if n := len(args); n > 2 && args[n-2] == "=>" {
		code, err := strconv.Atoi(args[n-1])
		ts.Check(err)
		want, args = cli.ExitCode(code), args[:n-2]
	}
	var out bytes.Buffer
	env := scriptEnv(ts)
	env.Stdout, env.Stderr, env.StdoutIsTerminal, env.StderrIsTerminal = &out, &out, true, true
	if got := cli.Run(context.Background(), env, args); got != want {
		ts.Fatalf("belfry ended with exit code %d, want %d:\n%s", got, want, out.String())
	}
	command := prompt + "belfry"
	for _, arg := range args {
		if strings.ContainsAny(arg, " \"") {
			arg = "'" + arg + "'"
		}
		command += " " + arg
	}
	s := ts.Value(screenKey{}).(*screen)
	text := runID.ReplaceAllString(strings.TrimRight(out.String(), "\n"), "01M80S10EMSE68DQ08V0PNNGHZ")
	s.lines = append(s.lines, command)
	s.lines = append(s.lines, append(strings.Split(text, "\n"), "")...)
}

// shown compares what was shown with a picture in the repository.
func shown(ts *testscript.TestScript, _ bool, args []string) {
	path := filepath.Join(ts.Getenv("REPOSITORY"), args[0])
	got := picture(args[1], ts.Value(screenKey{}).(*screen).lines)
	if os.Getenv("UPDATE") != "" {
		ts.Check(os.WriteFile(path, []byte(got), 0o644))
		return
	}
	had, err := os.ReadFile(path)
	ts.Check(err)
	if string(had) != got {
		ts.Fatalf("%s is not what the commands print; UPDATE=1 writes it anew:\n%s", args[0], got)
	}
}

// picture draws lines of a terminal as an SVG.
func picture(title string, lines []string) string {
	const (
		fontSize   = 14
		lineHeight = 20
		advance    = 8.45 // of a character
		margin     = 20
		bar        = 36 // of the window, at the top
	)
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	columns := 0
	for _, line := range lines {
		columns = max(columns, len(escape.ReplaceAllString(line, "")))
	}
	width := int(float64(columns)*advance) + 2*margin
	height := bar + len(lines)*lineHeight + margin

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", title)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#12181f"/>`+"\n", width, height)
	for i, colour := range []string{"#f2645a", "#f5bf4f", "#61c554"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", margin+i*20, colour)
	}
	fmt.Fprintf(&b, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d" fill="#d8dee6" xml:space="preserve" style="white-space: pre">`+"\n", fontSize)
	for i, line := range lines {
		if line == "" {
			continue
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", margin, bar+i*lineHeight+fontSize, coloured(line))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// escape is a change of the colour, with the code in it.
var escape = regexp.MustCompile("\x1b\\[([0-9]+)m")

// coloured turns the changes of the colour in a line into spans.
func coloured(line string) string {
	spans := map[string]string{
		"0":  "</tspan>",
		"1":  `<tspan font-weight="bold">`,
		"2":  `<tspan fill="#8391a0">`,
		"31": `<tspan fill="#ff7b72">`,
		"32": `<tspan fill="#7ee787">`,
	}
	return escape.ReplaceAllStringFunc(html.EscapeString(line), func(code string) string {
		return spans[escape.FindStringSubmatch(code)[1]]
	})
}
