#!/bin/sh
# Runs after an installation and an upgrade, of deb and of rpm.
set -e

# The user whose rights jobs have. It owns nothing of the server.
if ! getent passwd belfry >/dev/null; then
	useradd --system --create-home --home-dir /home/belfry --shell /usr/sbin/nologin belfry
fi

start() {
	systemctl start belfry.service || echo "belfry.service does not start: see systemctl status belfry" >&2
}

# A running server executes the new program in its place: running commands continue.
upgrade() {
	systemctl kill --kill-who=main --signal=USR2 belfry.service
}

running() {
	systemctl is-active --quiet belfry.service
}

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1" in
configure) # Debian: $2 is the version before, also of a package that was removed and not purged
	if [ -z "$2" ]; then
		systemctl enable belfry.service
		start
	elif running; then
		upgrade
	elif systemctl is-enabled --quiet belfry.service; then
		start
	fi
	;;
1) ;; # Red Hat: administrators start services
*)
	if running; then
		upgrade
	fi
	;;
esac
