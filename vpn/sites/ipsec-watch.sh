#!/bin/bash
# Checks all tunnels of charon in parallel, at the intervals of ends that dial or wait. Logs only changes of a tunnel's
# state.
# usage: ipsec-watch TABLE SOCKET FIRST EVERY FIRST EVERY; TABLE has a line for each tunnel: the first column is its name,
# the sixth dials or waits, the optional seventh an address at the far end; FIRST and EVERY are the seconds until the
# first check and between checks, of ends that dial and then of ends that wait
set -uo pipefail

readonly table=$1 socket=$2 look=${0%/*}/ipsec-look
declare -rA first=([dials]=$3 [waits]=$5) every=([dials]=$4 [waits]=$6)

watch() {
  local output down=''
  sleep "${first[$2]}"
  while :; do
    # Without an address there is no fourth argument.
    output=$("$look" "$socket" "$1" "$2" ${3:+"$3"})
    case $? in
    0)
      [[ -z $output && -z $down ]] || echo "${output:+$output; }$1 is up"
      down='' ;;
    1)
      [[ -n $down ]] || echo "$output"
      down=yes ;;
    esac
    sleep "${every[$2]}"
  done
}

while read -r name _ _ _ _ who echo; do
  watch "$name" "$who" "$echo" &
done <"$table"
# A watch never ends by itself: exit, and systemd restarts the script.
wait -n
exit 1
