# Sourced by tools/quickstart, tools/test and tools/dev/sanitize: shows what is being done and how long it takes.
# shellcheck shell=bash

# step TITLE COMMAND...: on a terminal the command's output is shown; in a file only if it fails.
step() {
  local title="$1" start=$SECONDS log status=0
  shift
  echo "== ${title}"
  if [[ -t 1 ]]; then
    "$@" || status=$?
  else
    log="$(mktemp)"
    "$@" >"$log" 2>&1 || { status=$?; cat "$log"; }
    rm -f "$log"
  fi
  (( status == 0 )) || { echo "${title}: failed with exit code ${status}" >&2; return "$status"; }
  echo "   $((SECONDS - start)) s"
}
