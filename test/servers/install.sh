#!/usr/bin/env bash
# Installs Debian's PostgreSQL, MariaDB, Redis, Chromium, fonts for it, cron, and what makes a Debian to
# install packages in, if they are missing and this user may. The tests start them, so that none need run.
set -euo pipefail

missing=()
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null || missing+=(postgresql)
[ -x /usr/sbin/mariadbd ] || command -v mariadbd >/dev/null || missing+=(mariadb-server)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
# The pages in Chinese are looked at as well.
{ command -v fc-list >/dev/null && fc-list :lang=zh | grep -q .; } || missing+=(fonts-wqy-microhei)
# The first font of the pages that Debian has; without it the pictures are in DejaVu.
{ command -v fc-list >/dev/null && fc-list : family | grep -q '^Inter'; } || missing+=(fonts-inter)
[ -x /usr/sbin/cron ] || missing+=(cron)
[ -x /usr/sbin/debootstrap ] || missing+=(debootstrap)
command -v rpm >/dev/null || missing+=(rpm)
[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "${missing[*]} is missing, and can be installed here by root on Debian only: the tests that need it will fail" >&2
  exit 0
fi
# Without a cluster of its own, which the package starts otherwise.
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
