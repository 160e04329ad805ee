#!/bin/bash
# Looks once at a tunnel, and dials it, once, if it does not stand; fails if it does not stand then either, with status 2
# where it is being built, for that is left alone. Never takes one down: of a tunnel that stands twice, one is left.
# Through one that stands it says a word to an address at the far end, where there is one: a tunnel in which nobody speaks
# could not be told from one that carries nothing.
# usage: ipsec-look SOCKET NAME dials|waits [ADDRESS]
set -uo pipefail

readonly socket=$1 name=$2 who=$3 echo=${4-}
readonly PATIENCE=10 # seconds
readonly BUILDING=2
readonly LONGEST=60  # seconds after which a daemon that does not answer is asked no more

order() { timeout --foreground "$LONGEST" swanctl "$@" --uri "$socket" </dev/null; }

associations() { order --list-sas --ike "$name" 2>/dev/null; }

# Of two gateways that dial in the same instant each gets a tunnel, of which neither replaces the other. The newest that
# carries is left, and of those that do not the newest.
repeated() {
  awk '
    /^[^ ]/ { id = $3 == "ESTABLISHED," ? substr($2, 2) + 0 : 0; if (id) all[id]; if (id > newest) newest = id }
    /^ .* INSTALLED,/ { if (id > carries) carries = id }
    END { left = carries ? carries : newest; for (id in all) if (id + 0 != left) print id }' <<<"$1"
}

thin() {
  local id
  for id in $(repeated "$(associations)"); do
    echo "$name stands twice: ending #$id"
    order --terminate --ike-id "$id" --timeout "$PATIENCE" >/dev/null
  done
}

# One end alone chooses, or each might end what the other keeps; what it ends itself is not dialled anew by it.
[[ $who == waits ]] || thin
told=$(associations)
if [[ $told == *INSTALLED* || $told == *REKEY* ]]; then
  [[ -z $echo ]] || ping -q -n -c 1 -W 1 "$echo" >/dev/null 2>&1
  exit 0
fi
[[ $told != *CONNECTING* ]] || exit "$BUILDING"
echo "$name does not stand: dialling"
if ! told=$(order --initiate --child "$name" --ike "$name" --timeout "$PATIENCE" 2>&1); then
  echo "$name: ${told##*$'\n'}"
  exit 1
fi
