#!/bin/bash
# Starts one node and plugs its cable in; stays as long as the node does. Also for a node that was
# powered off, from inside the head's namespaces.
# Usage: cluster_start_node.sh DIR INDEX [PATH_BELOW_TMP ...]
set -euo pipefail

dir=$1 index=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

ip link delete "v$index" 2>/dev/null || true # the old node's, if the kernel still has it
unshare --net --mount --pid --uts --ipc --fork --kill-child \
  "$here/cluster_node.sh" "$@" >>"$dir/n$index/boot.log" 2>&1 &
node_pid=$!
until [[ -e $dir/n$index/pid ]]; do
  kill -0 "$node_pid" || exit 1
  sleep 0.02
done
ip link add "v$index" type veth peer name eth0 netns "$node_pid"
ip link set "v$index" master br0 up
wait "$node_pid"
