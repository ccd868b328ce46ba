package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/cli/systemd"
)

func TestUnitNamesItsCommand(t *testing.T) {
	got, err := systemd.Unit(systemd.Options{Program: "/usr/bin/belfry"})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"ExecStart=/usr/bin/belfry serve --data /var/lib/belfry --run-as belfry", "StateDirectory=belfry", "NoNewPrivileges=yes"} {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("the unit has no line %q:\n%s", line, got)
		}
	}
}

func TestAUnitLeavesDirectoriesElsewhereToTheServer(t *testing.T) {
	got, err := systemd.Unit(systemd.Options{Program: "/opt/belfry", Data: "/srv/belfry", RunAs: "jobs", Config: "/etc/b.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "StateDirectory") || !strings.Contains(got, "--data /srv/belfry --run-as jobs --config /etc/b.yaml\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestUnitRefusesAmbiguousValues(t *testing.T) {
	for _, o := range []systemd.Options{
		{}, {Program: "belfry"}, {Program: "/usr/bin/belfry", Data: "data"}, {Program: "/usr/bin/belfry", Data: "/var/my data"},
		{Program: "/usr/bin/belfry", RunAs: "a\nExecStartPre=/bin/sh"}, {Program: "/usr/bin/%n"}, {Program: "/usr/bin/belfry", Config: "belfry.yaml"},
	} {
		if got, err := systemd.Unit(o); err == nil {
			t.Errorf("%+v: got\n%s", o, got)
		}
	}
}

func TestSystemdFindsNoMistakeInTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is missing, so that the unit is not verified:", err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit, err := systemd.Unit(systemd.Options{Program: program, Config: "/etc/belfry/belfry.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "belfry.service")
	if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	// Without the manual page, which is not installed.
	if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || strings.Contains(string(out), "belfry.service") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheGuideShowsTheUnit(t *testing.T) {
	want, err := systemd.Unit(systemd.Options{Program: "/usr/local/bin/belfry"})
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "# /etc/systemd/system/belfry.service\n"+want+"```") {
		t.Errorf("docs/operations.md shows another unit than\n%s", want)
	}
}
