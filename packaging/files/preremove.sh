#!/bin/sh
# Runs before a removal and before an upgrade, of deb and of rpm.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now belfry.service
	fi
	;;
esac
