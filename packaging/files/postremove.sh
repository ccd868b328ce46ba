#!/bin/sh
# Runs after a removal. The data in /var/lib/belfry and the user stay until a purge, which
# only Debian has.
set -e
if [ "$1" = purge ]; then
	rm -rf /var/lib/belfry
	rm -f /etc/systemd/system/multi-user.target.wants/belfry.service
	if getent passwd belfry >/dev/null; then
		# With its home directory. A user with running processes stays.
		userdel --remove belfry 2>/dev/null || true
	fi
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
