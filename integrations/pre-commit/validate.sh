#!/bin/sh
# Checks the given job files with the belfry on the PATH.
set -eu
for file; do
  shift
  set -- "$@" -f "$file"
done
exec belfry validate -o name "$@"
