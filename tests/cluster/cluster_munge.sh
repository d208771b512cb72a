#!/bin/bash
# munged in the foreground, with everything it needs in one folder that holds the key.
# Usage: cluster_munge.sh DIR
set -euo pipefail
exec munged --foreground --num-threads=10 --key-file="$1/key" --socket="$1/socket" \
  --pid-file="$1/pid" --seed-file="$1/seed" --log-file="$1/log"
