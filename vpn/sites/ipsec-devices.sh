#!/bin/bash
# Gives each tunnel its XFRM interface, address and routes. Run again, it changes nothing. Never touches a device that
# is not named ipsec and a number.
# usage: ipsec-devices TABLE SOURCE; TABLE has a line a tunnel: name, number, inside address or -, MTU, blocks or -, more;
# SOURCE is the address from which this machine itself sends, or - for the one that the kernel picks
set -euo pipefail

readonly table=$1 source=$2

from=(src "$source")
[[ $source != - ]] || from=()
while read -r _ number inside mtu blocks _; do
  device=ipsec$number
  ip link show "$device" >/dev/null 2>&1 || ip link add "$device" type xfrm if_id "$number"
  ip link set "$device" mtu "$mtu" up
  [[ $inside == - ]] || ip address replace "$inside" dev "$device"
  [[ $blocks != - ]] || continue
  for block in ${blocks//,/ }; do
    ip route replace "$block" dev "$device" "${from[@]}"
  done
done <"$table"
