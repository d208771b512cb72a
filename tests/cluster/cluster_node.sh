#!/bin/bash
# First process of one node: own host name, address, /tmp and /dev/shm, then slurmd. Killing it is a
# power failure of the node.
# Usage: cluster_node.sh DIR INDEX [PATH_BELOW_TMP ...]
set -euo pipefail

dir=$1 index=$2
shift 2
name=n$index
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SLURM_CONF=$dir/slurm.conf

read -r host_pid _ <"$dir/hostproc/self/stat"
umount "$dir/hostproc"
mount -t proc proc /proc
hostname "$name"

# A private /tmp hides the machine's; what the jobs need from there is bound to its old place.
# Two nodes must not share it: SLURM's PMIx plugin makes a folder there by job id.
count=0
for path in "$@"; do
  stash=$dir/$name/keep/$((count++))
  if [[ -d $path ]]; then mkdir -p "$stash"; else mkdir -p "${stash%/*}" && : >"$stash"; fi
  mount --bind "$path" "$stash"
done
mount --bind "$dir/$name/tmp" /tmp
count=0
for path in "$@"; do
  stash=$dir/$name/keep/$((count++))
  if [[ -d $stash ]]; then mkdir -p "$path"; else mkdir -p "${path%/*}" && : >"$path"; fi
  mount --move "$stash" "$path"
done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm

echo "$host_pid" >"$dir/$name/pid.new"
mv "$dir/$name/pid.new" "$dir/$name/pid" # now the head plugs the cable in
until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
ip link set lo up
ip addr add "10.77.0.$index/24" dev eth0
ip link set eth0 up

# A munged of its own, at the same path as the head's: one for all takes a message that is passed on
# from node to node for a replay, and SLURM then loses it (MPI_Init hung for minutes, now and then).
install -m 600 "$dir/munge/key" "$dir/$name/munge/key"
mount --bind "$dir/$name/munge" "$dir/munge"
"$here/cluster_munge.sh" "$dir/munge" &
until [[ -S $dir/munge/socket ]]; do sleep 0.02; done
slurmd -D 2>/dev/null & # it has its log file
while :; do # a dead slurmd is not a dead node
  sleep 3600 &
  wait
done
