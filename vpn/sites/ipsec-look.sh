#!/bin/bash
# Checks a tunnel once, and dials it once if it is down. Exit status 1: still down, 2: negotiation in progress. A tunnel
# that was established twice loses the older association. Pings ADDRESS at the far end through a tunnel that is up:
# without any traffic, a tunnel that works could not be distinguished from one that drops everything.
# usage: ipsec-look SOCKET NAME dials|waits [ADDRESS]
set -uo pipefail

readonly socket=$1 name=$2 who=$3 echo=${4-}
readonly PATIENCE=10 # seconds
readonly BUILDING=2
readonly LONGEST=60  # seconds to wait for a daemon that does not answer

order() { timeout --foreground "$LONGEST" swanctl "$@" --uri "$socket" </dev/null; }

associations() { order --list-sas --ike "$name" 2>/dev/null; }

# Two gateways that dial at the same time establish two associations, and neither replaces the other. Prints all but the
# newest one with an installed child, or all but the newest if none has one.
duplicates() {
  awk '
    /^[^ ]/ { id = $3 == "ESTABLISHED," ? substr($2, 2) + 0 : 0; if (id) all[id]; if (id > newest) newest = id }
    /^ .* INSTALLED,/ { if (id > carries) carries = id }
    END { left = carries ? carries : newest; for (id in all) if (id + 0 != left) print id }' <<<"$1"
}

end_duplicates() {
  local id
  for id in $(duplicates "$(associations)"); do
    echo "$name was established twice: terminating #$id"
    order --terminate --ike-id "$id" --timeout "$PATIENCE" >/dev/null
  done
}

# Only the end that dials chooses, or each might terminate what the other keeps.
[[ $who == waits ]] || end_duplicates
output=$(associations)
if [[ $output == *INSTALLED* || $output == *REKEY* ]]; then
  [[ -z $echo ]] || ping -q -n -c 1 -W 1 "$echo" >/dev/null 2>&1
  exit 0
fi
[[ $output != *CONNECTING* ]] || exit "$BUILDING"
echo "$name is down: dialling"
if ! output=$(order --initiate --child "$name" --ike "$name" --timeout "$PATIENCE" 2>&1); then
  echo "$name: ${output##*$'\n'}"
  exit 1
fi
