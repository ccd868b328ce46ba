package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/cli/systemd"
)

// testHost is a machine that records commands instead of running them.
func testHost(t *testing.T) (h *host, ran *[]string, told *bytes.Buffer) {
	ran, told = new([]string), new(bytes.Buffer)
	users := map[string]bool{}
	h = &host{
		env: Env{Stdout: told, Stderr: told}, unit: filepath.Join(t.TempDir(), unitName),
		ready:   func() error { return nil },
		hasUser: func(name string) bool { return users[name] },
		run: func(_ context.Context, name string, args ...string) error {
			if name == "useradd" {
				users[args[len(args)-1]] = true
			}
			*ran = append(*ran, name+" "+strings.Join(args, " "))
			return nil
		},
	}
	return h, ran, told
}

func TestAServiceIsInstalledOnce(t *testing.T) {
	h, ran, _ := testHost(t)
	o := systemd.Options{Program: "/usr/local/bin/belfry", Data: systemd.DefaultData, RunAs: "jobs"}
	if err := h.install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{"useradd --system --create-home --shell /usr/sbin/nologin jobs", "systemctl daemon-reload", "systemctl enable --now belfry.service"}
	if !slices.Equal(*ran, want) {
		t.Errorf("ran %q, want %q", *ran, want)
	}
	text, err := os.ReadFile(h.unit)
	if err != nil || !strings.Contains(string(text), "ExecStart=/usr/local/bin/belfry serve --data /var/lib/belfry --run-as jobs\n") {
		t.Errorf("the unit is %s, %v", text, err)
	}

	*ran = nil
	if err := h.install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if want := want[2:]; !slices.Equal(*ran, want) {
		t.Errorf("a second install ran %q, want %q", *ran, want)
	}
	o.Data = "/srv/belfry"
	if err := h.install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another unit") {
		t.Errorf("with another directory: %v", err)
	}

	*ran = nil
	if err := h.uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"systemctl disable --now belfry.service", "systemctl daemon-reload"}; !slices.Equal(*ran, want) {
		t.Errorf("uninstall ran %q, want %q", *ran, want)
	}
	var f *failure
	if err := h.uninstall(t.Context()); !errors.As(err, &f) || f.code != ExitNotFound {
		t.Errorf("a second uninstall: %v", err)
	}
}

func TestADryRunInstallsNothing(t *testing.T) {
	h, ran, told := testHost(t)
	h.dryRun = true
	h.ready = func() error { return errors.New("no systemd") }
	if err := h.install(t.Context(), systemd.Options{Program: "/usr/local/bin/belfry", RunAs: "jobs"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.unit); err == nil || len(*ran) > 0 {
		t.Errorf("ran %q, the unit is there: %v", *ran, err == nil)
	}
	for _, line := range []string{"would create user jobs", "would write " + h.unit, "ExecStart=/usr/local/bin/belfry", "would enable and start"} {
		if !strings.Contains(told.String(), line) {
			t.Errorf("nothing says %q:\n%s", line, told)
		}
	}
}

func TestAServiceNeedsAProgramThatStays(t *testing.T) {
	h, ran, _ := testHost(t)
	for _, program := range []string{os.TempDir() + "/go-build1/exe/belfry", "belfry", ""} {
		if err := h.install(t.Context(), systemd.Options{Program: program, RunAs: "jobs"}); err == nil || len(*ran) > 0 {
			t.Errorf("%q: %v, ran %q", program, err, *ran)
		}
	}
}
