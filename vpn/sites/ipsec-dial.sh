#!/bin/bash
# Dials, once, the tunnels of one charon that do not stand. Never takes one down: of a tunnel that stands twice, one is
# left. Through those that stand it says a word to an address at the far end, where the table has one: a tunnel in which
# nobody speaks could not be told from one that carries nothing.
# usage: ipsec-dial TABLE SOCKET; TABLE has a line a tunnel, its name first, who dials sixth and the address seventh
set -euo pipefail

readonly table=$1 socket=$2
readonly PATIENCE=10 # seconds

stands() {
  local told
  told=$(swanctl --list-sas --ike "$1" --uri "$socket")
  # One that is being built, or renewed, is left alone.
  [[ $told == *CONNECTING* || $told == *INSTALLED* || $told == *REKEY* ]]
}

# Two gateways that dial in the same instant get a tunnel each, of which neither replaces the other.
repeated() {
  swanctl --list-sas --ike "$1" --uri "$socket" | sed -nE "s/^$1: #([0-9]+), ESTABLISHED.*/\\1/p" | sort -n | head -n -1
}

thin() {
  local id
  for id in $(repeated "$1"); do
    echo "$1 stands twice: ending #$id"
    swanctl --terminate --ike-id "$id" --timeout "$PATIENCE" --uri "$socket" </dev/null || true
  done
}

speak() { [[ -z $1 ]] || ping -q -n -c 1 -W 1 "$1" >/dev/null 2>&1 || true; }

failed=0
while read -r name _ _ _ _ who echo; do
  # One end alone chooses, or each might end what the other keeps; what it ends itself is not dialled anew by it.
  [[ $who == waits ]] || thin "$name"
  stands "$name" && speak "$echo" && continue
  echo "$name does not stand: dialling"
  swanctl --initiate --child "$name" --ike "$name" --timeout "$PATIENCE" --uri "$socket" </dev/null || failed=1
done <"$table"
exit "$failed"
