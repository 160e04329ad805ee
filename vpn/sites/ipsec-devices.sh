#!/bin/bash
# Creates the XFRM interface, address and routes of each tunnel; a second run changes nothing. Devices with other names
# than ipsec<number> are not touched.
# usage: ipsec-devices TABLE SOURCE; TABLE has a line for each tunnel: name, number, inside address or -, MTU, blocks or
# -, other columns; SOURCE is the source address of this machine's own packets, or - if the kernel chooses it
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
