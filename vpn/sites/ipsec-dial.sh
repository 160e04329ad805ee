#!/bin/bash
# Dials, once, the tunnels of one charon that do not stand. Never takes one down.
# usage: ipsec-dial TABLE SOCKET; TABLE has a line a tunnel, its name first
set -euo pipefail

readonly table=$1 socket=$2
readonly PATIENCE=10 # seconds

stands() {
  local told
  told=$(swanctl --list-sas --ike "$1" --uri "$socket")
  # One that is being built, or renewed, is left alone.
  [[ $told == *CONNECTING* || $told == *INSTALLED* || $told == *REKEY* ]]
}

failed=0
while read -r name _; do
  stands "$name" && continue
  echo "$name does not stand: dialling"
  swanctl --initiate --child "$name" --ike "$name" --timeout "$PATIENCE" --uri "$socket" </dev/null || failed=1
done <"$table"
exit "$failed"
