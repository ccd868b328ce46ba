package crontab

import (
	"regexp"

	"github.com/belfry-cron/belfry/internal/phrase"
)

var (
	becomesUser  = regexp.MustCompile(`(^|[\s;|&(])(/usr/bin/|/bin/)?(sudo|su|doas|pkexec)(\s|$)`)
	usesTemp     = regexp.MustCompile(`(^|[\s=:"'<>(])(/var)?/tmp(/|[\s"';|&)]|$)`)
	writesSystem = regexp.MustCompile(`>>?\s*["']?(/etc|/usr|/boot)/` +
		`|(^|[\s;|&(])(tee|rm|touch|mkdir|chmod|chown|sed -i\S*)\s([^;|&]*\s)?["']?(/etc|/usr|/boot)/` +
		`|(^|[\s;|&(])(cp|mv|install|ln|rsync)\s[^;|&]*\s["']?(/etc|/usr|/boot)/[^\s;|&]*\s*($|[;|&])` + // as the target
		`|(^|[\s;|&(/])(apt|apt-get|dpkg|dnf|yum|zypper|rpm|certbot|unattended-upgrade|update-grub)(\s|$)`)
)

// noteOfProtections names what a command does that works under cron and fails on a server: its
// commands gain no rights, and its unit has more protections.
func (l *Line) noteOfProtections(command string, unit bool) {
	if becomesUser.MatchString(command) {
		l.note(phrase.NoMoreRights)
	}
	if !unit {
		return
	}
	if usesTemp.MatchString(command) {
		l.note(phrase.PrivateTemp)
	}
	if writesSystem.MatchString(command) {
		l.note(phrase.ReadOnlySystem)
	}
}
