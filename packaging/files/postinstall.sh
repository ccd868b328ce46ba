#!/bin/sh
# Runs after an installation and an upgrade, of deb and of rpm.
set -e

# The user whose rights jobs have. It owns nothing of the server.
if ! getent passwd belfry >/dev/null; then
	useradd --system --create-home --home-dir /home/belfry --shell /usr/sbin/nologin belfry
fi

# A running server executes the new program in its place: running commands continue.
upgrade() {
	if systemctl is-active --quiet belfry.service; then
		systemctl kill --kill-who=main --signal=USR2 belfry.service
	fi
}

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1" in
configure) # Debian: $2 is the version before, if there was one
	if [ -z "$2" ]; then
		systemctl enable --now belfry.service
	else
		upgrade
	fi
	;;
1) ;; # Red Hat: services are started by who installs them
*)
	upgrade
	;;
esac
