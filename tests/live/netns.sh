#!/usr/bin/env bash
# A cluster of network namespaces on one machine: one for each node, and one for the switch between them, so that the
# machine's own network stays untouched. Needs only root and iproute2. netns.py wraps it for tests.
#
# netns.sh up N [4|6|46] [two-nics]   nodes 1..N: eth0 is 10.99.0.I/24 (4) and fd99::I/64 (6), host name nodeI, all names in
#                               each hosts file. two-nics: eth1 reaches the peers, eth0 (10.98.I.1, fd98:I::1) no node
# netns.sh exec I cmd...        runs cmd on node I, or on the switch for "hub"; the process id stays the same
# netns.sh cut I | heal I       unplugs node I at the switch: its carrier stays, no RST is sent, everything is lost
# netns.sh drop I J | undrop I J    what node I sends to node J is lost (one way only)
# netns.sh rate I 10mbit | unrate I    limits what node I sends
# netns.sh middle I             takes node I off the switch, for netns_middlebox.py to forward between vI and nI on the hub
# netns.sh down                 kills the processes inside and deletes everything
# Env: PFX, the prefix of the namespaces' names (default mu); clusters with different ones do not meet.
set -euo pipefail
PFX=${PFX:-mu}
HUB=${PFX}-hub

namespaces() { ip netns list | awk -v p="$PFX-" 'index($1, p) == 1 {print $1}'; }
port_of() { if ip -n "$HUB" link show "m$1" >/dev/null 2>&1; then echo "m$1"; else echo "v$1"; fi; }
nic_to_peers() { if ip -n "$PFX-$1" link show eth1 >/dev/null 2>&1; then echo eth1; else echo eth0; fi; }
sysctl_in() { ip netns exec "$1" sh -c 'echo "$1" > "/proc/sys/$0"' "$2" "$3"; }
# A frame to a station that does not exist is flooded to all and accepted by none.
blackhole() { ip -n "$PFX-$1" neigh "$2" "$3" lladdr 02:00:00:00:00:fe dev "$(nic_to_peers "$1")" nud permanent 2>/dev/null || true; }

hosts() {  # N FAMILIES
  printf '127.0.0.1 localhost\n::1 localhost\n'
  for i in $(seq 1 "$1"); do
    case $2 in *4*) echo "10.99.0.$i node$i" ;; esac
    case $2 in *6*) printf 'fd99::%x node%d\n' "$i" "$i" ;; esac
  done
}

node_up() {  # I FAMILIES NIC HOSTS
  local i=$1 n=$PFX-$1 dev=$3
  mkdir -p "/etc/netns/$n"
  printf '%s\n' "$4" >"/etc/netns/$n/hosts"
  echo "node$i" >"/etc/netns/$n/hostname"
  # No DNS server listens there, so the refusal comes at once.
  printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >"/etc/netns/$n/resolv.conf"
  ip netns add "$n"
  sysctl_in "$n" net/ipv6/conf/default/accept_dad 0
  ip -n "$n" link set lo up
  if [ "$dev" = eth1 ]; then
    ip -n "$HUB" link add "x$i" type veth peer name eth0 netns "$n"
    ip -n "$HUB" link set "x$i" up
    ip -n "$n" link set eth0 up
    case $2 in *4*) ip -n "$n" addr add "10.98.$i.1/24" dev eth0 ;; esac
    case $2 in *6*) ip -n "$n" addr add "$(printf 'fd98:%x::1/64' "$i")" dev eth0 nodad ;; esac
  fi
  ip -n "$HUB" link add "v$i" type veth peer name "$dev" netns "$n"
  ip -n "$HUB" link set "v$i" master br0 up
  ip -n "$n" link set "$dev" up
  case $2 in *4*) ip -n "$n" addr add "10.99.0.$i/24" dev "$dev" ;; esac
  case $2 in *6*) ip -n "$n" addr add "$(printf 'fd99::%x/64' "$i")" dev "$dev" nodad ;; esac
}

case "${1:-}" in
up)
  count=$2 families=${3:-4} nic=eth0
  [ "${4:-}" = two-nics ] && nic=eth1
  [ -n "$(namespaces)" ] && "$0" down
  ip netns add "$HUB"
  for which in default all; do sysctl_in "$HUB" "net/ipv6/conf/$which/disable_ipv6" 1; done
  ip -n "$HUB" link add br0 type bridge forward_delay 0 stp_state 0
  ip -n "$HUB" link set br0 up
  names=$(hosts "$count" "$families")
  for i in $(seq 1 "$count"); do node_up "$i" "$families" "$nic" "$names"; done ;;
exec)
  i=$2; shift 2
  [ "$i" = hub ] && exec ip netns exec "$HUB" "$@"
  exec ip netns exec "$PFX-$i" unshare --uts sh -c 'hostname "$0"; exec "$@"' "node$i" "$@" ;;
cut) ip -n "$HUB" link set "$(port_of "$2")" nomaster ;;
heal) ip -n "$HUB" link set "$(port_of "$2")" master br0 ;;
drop) blackhole "$2" replace "10.99.0.$3"; blackhole "$2" replace "$(printf 'fd99::%x' "$3")" ;;
undrop) blackhole "$2" del "10.99.0.$3"; blackhole "$2" del "$(printf 'fd99::%x' "$3")" ;;
rate) tc -n "$PFX-$2" qdisc replace dev "$(nic_to_peers "$2")" root tbf rate "$3" burst 64kbit latency 400ms ;;
unrate) tc -n "$PFX-$2" qdisc del dev "$(nic_to_peers "$2")" root ;;
middle)
  ip -n "$HUB" link set "v$2" nomaster
  ip -n "$HUB" link add "m$2" type veth peer name "n$2"
  ip -n "$HUB" link set "n$2" up
  ip -n "$HUB" link set "m$2" master br0 up ;;
down)
  for n in $(namespaces); do
    for p in $(ip netns pids "$n" 2>/dev/null); do kill -9 "$p" 2>/dev/null || true; done
    ip netns del "$n" 2>/dev/null || true
    rm -rf "/etc/netns/$n"
  done
  rmdir /etc/netns 2>/dev/null || true ;;
*) sed -n 2,17p "$0"; exit 2 ;;
esac
