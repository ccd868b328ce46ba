#!/bin/sh
# Runs before a removal and before an upgrade, of deb and of rpm.
set -e
[ -d /run/systemd/system ] || exit 0
case "$1" in
remove) # Debian: a package that is installed again is enabled if it was
	systemctl stop belfry.service
	;;
0) # Red Hat
	systemctl disable --now belfry.service
	;;
esac
