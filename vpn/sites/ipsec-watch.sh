#!/bin/bash
# Has the tunnels of one charon looked after for as long as it runs, each by itself and at the pace of who dials or waits:
# one that does not answer keeps no other waiting. Says what became of one, and not what stays as it is.
# usage: ipsec-watch TABLE SOCKET FIRST EVERY FIRST EVERY; TABLE has a line a tunnel: its name first, who dials sixth, and
# an address at the far end, if there is one, seventh; the seconds are of those that dial, then of those that wait
set -uo pipefail

readonly table=$1 socket=$2 look=${0%/*}/ipsec-look
declare -rA first=([dials]=$3 [waits]=$5) every=([dials]=$4 [waits]=$6)

watch() {
  local told down=''
  sleep "${first[$2]}"
  while :; do
    # An address that is not there is no word.
    told=$("$look" "$socket" "$1" "$2" ${3:+"$3"})
    case $? in
    0)
      [[ -z $told && -z $down ]] || echo "${told:+$told; }$1 stands"
      down='' ;;
    1)
      [[ -n $down ]] || echo "$told"
      down=yes ;;
    esac
    sleep "${every[$2]}"
  done
}

while read -r name _ _ _ _ who echo; do
  watch "$name" "$who" "$echo" &
done <"$table"
# None of them ends by itself: whoever started this starts all anew.
wait -n
exit 1
