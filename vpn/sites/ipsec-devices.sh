#!/bin/bash
# Gives the tunnels of one charon their devices and routes. Run again, it changes nothing. Never touches a device that
# is not named ipsec and a number.
# usage: ipsec-devices TABLE SOURCE PID; TABLE has a line a tunnel: name, number, inside address or -, MTU, blocks or -, more;
# SOURCE is the address from which this machine itself sends, or - for the one that the kernel picks
set -euo pipefail

readonly table=$1 source=$2 pid=$3

# Without ESP in the kernel, the charon holds one TUN device open for all its tunnels; the kernel named it.
tun_device() { sed -n 's/^iff:[[:space:]]*//p' "/proc/$pid/fdinfo/"* 2>/dev/null | head -n 1; }

xfrm_device() {
  ip link show "ipsec$1" >/dev/null 2>&1 || ip link add "ipsec$1" type xfrm if_id "$1"
  echo "ipsec$1"
}

own=$(tun_device)
from=(src "$source")
[[ $source != - ]] || from=()
while read -r _ number inside mtu blocks _; do
  device=${own:-$(xfrm_device "$number")}
  ip link set "$device" mtu "$mtu" up
  [[ $inside == - ]] || ip address replace "$inside" dev "$device"
  [[ $blocks != - ]] || continue
  for block in ${blocks//,/ }; do
    ip route replace "$block" dev "$device" "${from[@]}"
  done
done <"$table"
