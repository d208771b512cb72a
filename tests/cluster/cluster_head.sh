#!/bin/bash
# First process of a test cluster: the switch, munged, slurmctld, and one child per node.
# Started by cluster.py inside `unshare --net --mount --pid --uts --ipc --fork --kill-child`, so
# killing this process takes the whole cluster away.
# Usage: cluster_head.sh DIR NODES [PATH_BELOW_TMP ...]
set -euo pipefail

dir=$1 nodes=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SLURM_CONF=$dir/slurm.conf

# The old /proc still counts as the machine does; the nodes need it once, to say who they are.
mount --bind /proc "$dir/hostproc"
read -r host_pid _ <"$dir/hostproc/self/stat"
echo "$host_pid" >"$dir/head.pid"
mount -t proc proc /proc
hostname head
mount --bind "$dir/hosts" /etc/hosts

ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.254/24 dev br0
ip link set br0 up

while read -r size path; do # before the nodes, so that they all see it
  mkdir -p "$path"
  mount -t tmpfs -o "size=$size,mode=700" tmpfs "$path"
done <"$dir/disks"

"$here/cluster_munge.sh" "$dir/munge" &
slurmctld -D 2>/dev/null & # it has its log file

for ((i = 1; i <= nodes; i++)); do
  "$here/cluster_start_node.sh" "$dir" "$i" "$@" &
  until [[ -e $dir/n$i/pid ]]; do
    kill -0 $! || exit 1
    sleep 0.02
  done
done

# As process 1 of its namespace bash also buries orphans while it waits.
while :; do
  sleep 3600 &
  wait
done
