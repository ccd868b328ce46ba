#!/bin/sh
# Runs after a removal. The data in /var/lib/belfry and the user stay until a purge, which
# only Debian has.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/belfry
	if getent passwd belfry >/dev/null; then
		userdel belfry || true
	fi
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
