//go:build servers

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belfry-cron/belfry/job"
)

func TestHangUpReloadsTheConfiguration(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	file := filepath.Join(t.TempDir(), "belfry.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("http: {deny: [127.0.0.0/8]}\ncapacity: 5\n")
	s := f.serve(t, options{args: []string{"--config", file}})
	reload := func(says string) {
		t.Helper()
		before := s.log.lines(says)
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it says "+says, func() bool { return s.log.lines(says) > before })
	}
	reason := func(name string) string {
		t.Helper()
		return s.ended(s.runByHand(name).ID).Reason
	}
	s.apply(`{name: call, run: {http: {url: "http://127.0.0.1:1/"}}}`)
	if got := reason("call"); !strings.Contains(got, "which http.deny closes") {
		t.Fatalf("at first the call ends with %q", got)
	}

	write("http: {deny: [127.0.0.2]}\ncapacity: 6\nlog_level: debug\nkeep: {runs: 10}\nshell: {allow_users: [daemon]}\n")
	reload(`"msg":"configuration reloaded","changed":["keep.runs","shell.allow_users","http.deny","log_level"]`)
	eventually(t, "it says what needs a restart", func() bool {
		return s.log.lines(`"msg":"changed settings need a restart","settings":["capacity"]`) == 1
	})
	if got := reason("call"); !strings.Contains(got, "connection refused") {
		t.Errorf("after the reload the call ends with %q", got)
	}
	if os.Geteuid() == 0 {
		s.apply("{name: other, run: {shell: id -un, user: daemon, dir: /}}")
		if ended := s.ended(s.runByHand("other").ID); ended.Outcome != job.OutcomeSucceeded {
			t.Errorf("after the reload run.user ends with %q", ended.Reason)
		}
	}
	eventually(t, "it logs at the level debug", func() bool { return s.log.lines(`"level":"DEBUG"`) > 0 })

	write("http: {deny: [127.0.0.0/80]}\n")
	reload(`"msg":"cannot reload the configuration; the server keeps the old one"`)
	eventually(t, "the log says what is wrong with the file", func() bool { return s.log.lines("http.deny[0]") > 0 })
	if got := reason("call"); !strings.Contains(got, "connection refused") {
		t.Errorf("after a file with a mistake the call ends with %q", got)
	}

	// A higher level hides what follows, and not the reload that sets it.
	write("http: {deny: [127.0.0.2]}\ncapacity: 6\nlog_level: error\nkeep: {runs: 10}\nshell: {allow_users: [daemon]}\n")
	reload(`"msg":"configuration reloaded","changed":["log_level"]`)
	s.stop()
}
