#!/usr/bin/env bash
# Installs what the tests start and this machine lacks, if this user may: Debian's PostgreSQL, PgBouncer,
# MariaDB, Redis, Chromium, fonts for it, cron, Podman and Docker, Node.js, and what makes a Debian to install packages in. It says first what
# it installs, why, and how large that is.
#
#   install.sh            install what is missing
#   install.sh missing    print the names of the missing packages, and change nothing
#
# ROOT is where the programs are looked for, for its test.
set -euo pipefail
root=${ROOT:-}

missing=() reasons=()
needs() { missing+=("$1"); reasons+=("$2"); }
has() { command -v "$1" >/dev/null || [ -x "$root/usr/sbin/$1" ]; }
font() { command -v fc-list >/dev/null && fc-list "$@" | grep -q .; }

compgen -G "$root/usr/lib/postgresql/*/bin/postgres" >/dev/null || has postgres || needs postgresql 'the stores on PostgreSQL'
has pgbouncer || needs pgbouncer 'the stores on PostgreSQL behind a connection pooler'
has mariadbd || needs mariadb-server 'the stores on MySQL and MariaDB, and XXL-JOB'
has redis-server || needs redis-server 'the stores on Redis'
has chromium-headless-shell || has chromium || has chromium-browser || has google-chrome || needs chromium-headless-shell 'the pages of the web UI'
font :lang=zh || needs fonts-wqy-microhei 'the pages in Chinese'
font Inter || needs fonts-inter 'the first font of the pages, for their pictures'
has cron || needs cron 'the jobs that belfry crontab export writes'
has podman || needs podman 'containers in Podman'
has runc || needs runc 'containers in Podman and Docker'
[ -e "$root/usr/lib/podman/netavark" ] || needs netavark 'networks of Podman'
has newuidmap || needs uidmap 'rootless Podman'
has dockerd || needs docker.io 'containers in Docker'
[ -e "$root/bin/busybox" ] || needs busybox-static 'the image of the containers'
has spin || needs spin 'the model of the protocol'
has gcc || needs gcc 'the search of the model, and the race detector'
[ -e "$root/usr/include/stdio.h" ] || needs libc6-dev 'what gcc compiles'
has python3 || needs python3 'the workers in Python'
has node || needs nodejs 'the workers in TypeScript, and the client that is made from the description of the API'
has debootstrap || needs debootstrap 'the Debian in which packages are installed'
has minisign || needs minisign 'the signature of a release'
has rpm || needs rpm 'the packages for Fedora and its like'

if [ "${1:-}" = missing ]; then
  echo "${missing[*]}"
  exit 0
fi
[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "${missing[*]}: missing, and installed here by root on Debian only: the tests that need it will fail. DEPS=no leaves them out." >&2
  exit 0
fi

echo 'These packages of Debian are missing and will be installed. DEPS=no installs nothing, and leaves out their tests.'
for i in "${!missing[@]}"; do printf '  %-20s for %s\n' "${missing[i]}" "${reasons[i]}"; done

# How long another package manager is waited for: an upgrade of the machine takes minutes.
tries=360 pause=${PAUSE:-5}

# apt runs apt-get, once no other package manager works.
apt() {
  local said
  for ((i = 1; ; i++)); do
    if said=$(LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>&1); then
      printf '%s' "$said"
      return
    fi
    if [ $i -ge $tries ] || ! grep -q 'Could not get lock\|Unable to acquire the dpkg frontend lock\|Unable to lock' <<<"$said"; then
      printf '%s\n' "$said" >&2
      return 1
    fi
    [ $i -gt 1 ] || echo 'Another package manager is at work on this machine; waiting for its end, at most 30 minutes.' >&2
    sleep "$pause"
  done
}

# Without a cluster of its own, which the package starts otherwise.
mkdir -p "$root/etc/postgresql-common"
[ -e "$root/etc/postgresql-common/createcluster.conf" ] || echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
apt update -qq >/dev/null
# It answers no to itself, after it has said how large they are.
LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null | grep -E '^(Need to get|After this operation)' | sed 's/^/  /' || true
apt install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
