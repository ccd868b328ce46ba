package crontab_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-cron/belfry/internal/cli/crontab"
)

// only returns the line that a text makes.
func only(t *testing.T, text string, opt crontab.Options) crontab.Line {
	t.Helper()
	lines := crontab.Import(text, opt)
	if len(lines) != 1 {
		t.Fatalf("%q makes %d lines", text, len(lines))
	}
	return lines[0]
}

func TestCommandsThatTheServerForbidsAreNamed(t *testing.T) {
	for command, want := range map[string]string{
		"sudo -u postgres pg_dump shop":                "sudo",
		"cd /srv; /usr/bin/sudo ./报表":                  "sudo",
		"echo pseudo sudoku":                           "",
		"mysqldump shop > /tmp/shop.sql":               "PrivateTmp",
		"TMPDIR=/var/tmp ./build":                      "PrivateTmp",
		"ls /srv/tmp/x ./tmp":                          "",
		"date >> /etc/motd":                            "ProtectSystem",
		"tee /etc/motd < /srv/motd":                    "ProtectSystem",
		"cp -a /srv/hosts /etc/hosts":                  "ProtectSystem",
		"cp -a /etc/ssl /backup":                       "",
		"cp /etc/passwd /backup/passwd":                "",
		"tar czf /backup/etc.tgz /etc":                 "",
		"sed -i s/a/b/ /etc/hosts && true":             "ProtectSystem",
		"test -x /usr/bin/certbot && certbot renew":    "ProtectSystem",
		"apt-get -q update":                            "ProtectSystem",
		"/usr/bin/backup /etc/backup.conf 2>/dev/null": "",
		"sudo apt update > /tmp/log":                   "sudo PrivateTmp ProtectSystem",
	} {
		l := only(t, "0 3 * * * "+command+"\n", crontab.Options{Owner: "alice", Zone: "UTC", Home: func(string) string { return "/" }, Protected: true})
		if all := fmt.Sprint(l.Notes); len(l.Notes) != len(strings.Fields(want)) {
			t.Errorf("%s: %q", command, all)
		} else {
			for _, word := range strings.Fields(want) {
				if !strings.Contains(all, word) {
					t.Errorf("%s: %q, want %s", command, all, want)
				}
			}
		}
	}
	l := only(t, "0 3 * * * sudo apt update > /tmp/log\n", crontab.Options{Zone: "UTC", Owner: "alice", Home: func(string) string { return "/" }})
	if len(l.Notes) != 1 {
		t.Errorf("without the unit: %q", l.Notes)
	}
}

func TestAbsentUsersAreNamed(t *testing.T) {
	opt := crontab.Options{Format: crontab.System, Zone: "UTC", Home: func(string) string { return "/" }, Unknown: func(name string) bool { return name == "nosuchuser" }}
	if l := only(t, "0 3 * * * nosuchuser /bin/true\n", opt); len(l.Notes) != 1 || l.Notes[0].String() != "this machine has no user nosuchuser" {
		t.Errorf("%q", l.Notes)
	}
	if l := only(t, "0 3 * * * root /bin/true\n", opt); len(l.Notes) != 0 {
		t.Errorf("%q", l.Notes)
	}
}

func TestSystemCrontabsAreKnownByTheirUsers(t *testing.T) {
	isUser := func(word string) bool { return word == "root" || word == "www-data" || word == "backup" }
	isProgram := func(word string) bool { return word == "echo" || word == "backup" }
	for text, want := range map[string]bool{
		"0 3 * * * root /bin/true\n0 4 * * * deploy /opt/absent/用户\n":                                          true, // who was deleted here
		"0 3 * * * root /bin/true\n0 4 * * * echo hello\n":                                                     false,
		"0 3 * * * deploy /opt/a\n":                                                                            false,
		"0 3 * * * root /bin/true\n0 4 * * * A=1 /opt/a\n":                                                     false,
		"# 系统\nSHELL=/bin/sh\n17 * * * *\troot\tcd / && run-parts /etc/cron.hourly\n@daily www-data /opt/站点\n": true,
		"0 3 * * * root /bin/true\n0 4 * * * /bin/false\n":                                                     false,
		"0 3 * * * backup\n":                     false, // a command without a user
		"0 3 * * * /usr/bin/backup root\n":       false,
		"0 3 * * * backup /data\n":               true, // both, so that a person decides
		"MAILTO=root\n# 0 3 * * * root true\n\n": false,
		"0 3 * *\n":                              false,
	} {
		if got := crontab.HasUserColumn(text, isUser, isProgram); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestFullNamesInCrontabsAreReadWithANote(t *testing.T) {
	opt := crontab.Options{Owner: "alice", Zone: "UTC", Home: func(string) string { return "/" }}
	l := only(t, "0 3 * February Monday-FRIDAY /opt/friday\n", opt)
	if !l.Problem.IsZero() || l.Documents[0].Job.Schedule.Cron[0] != "0 3 * Feb Mon-FRI" {
		t.Errorf("%+v", l)
	}
	if want := `cron takes names of three letters only: "0 3 * February Monday-FRIDAY" is read as "0 3 * Feb Mon-FRI"`; len(l.Notes) != 1 || l.Notes[0].String() != want {
		t.Errorf("%q", l.Notes)
	}
	if l := only(t, "0 3 * * frida /opt/x\n", opt); !strings.Contains(l.Problem.String(), `"frida" is not a number or a name`) {
		t.Errorf("%+v", l)
	}
}

func TestTimersAsSystemdReadsThem(t *testing.T) {
	for _, c := range []struct{ name, calendar, cron, zone, problem string }{
		{"a zone in any case", "OnCalendar=*-*-* 03:00 uTc", "0 3 * * *", "UTC", ""},
		{"a named zone in any case", "OnCalendar=*-*-* 03:00 europe/berlin", "0 3 * * *", "Europe/Berlin", ""},
		{"an unknown zone", "OnCalendar=*-*-* 03:00 Europe/Berlinn", "", "", "unknown time zone"},
		{"years of two digits", "OnCalendar=26..28-01-01 03:00", "0 0 3 1 1 * 2026-2028", "Asia/Shanghai", ""},
		{"years of the last century", "OnCalendar=70,99,2030-01-01 03:00", "0 0 3 1 1 * 1970,1999,2030", "Asia/Shanghai", ""},
		{"steps of years", "OnCalendar=2026/10-01-01 03:00", "0 0 3 1 1 * 2026/10", "Asia/Shanghai", ""},
		{"an empty calendar", "OnCalendar=", "", "", "no schedule"},
		{"a calendar that is taken back", "OnCalendar=daily\nOnCalendar=", "", "", "no schedule"},
		{"no line that says when", "Persistent=true", "", "", "no schedule"},
	} {
		l := only(t, "[Timer]\n"+c.calendar+"\n", crontab.Options{Format: crontab.Timer, Zone: "Asia/Shanghai", Unit: "a.service"})
		if !strings.Contains(l.Problem.String(), c.problem) || (l.Problem.IsZero()) != (c.problem == "") {
			t.Errorf("%s: %q", c.name, l.Problem)
			continue
		}
		if c.problem != "" {
			if len(l.Documents) > 0 || l.Text == "" {
				t.Errorf("%s: %+v", c.name, l)
			}
			continue
		}
		if s := l.Documents[0].Job.Schedule; s.Cron[0] != c.cron || s.Timezone != c.zone {
			t.Errorf("%s: %q in %s", c.name, s.Cron, s.Timezone)
		}
	}
}

func TestAddressesInOtherScriptsHaveChannelsOfTheirOwn(t *testing.T) {
	opt := crontab.Options{Owner: "alice", Zone: "UTC", MailServer: "mail.example.org:587", MailFrom: "cron@example.org"}
	channels := map[string]string{}
	for _, l := range crontab.Import("MAILTO=值班@例子.cn\n0 1 * * * a\nMAILTO=运维@例子.cn\n0 2 * * * b\n0 3 * * * c\n", opt) {
		for _, d := range l.Documents {
			if d.Channel != nil {
				channels[d.Channel.Name] = d.Channel.To.Mail.To[0]
			}
		}
	}
	if len(channels) != 2 {
		t.Errorf("the channels are %v", channels)
	}
}
