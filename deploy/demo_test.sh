#!/bin/bash
# Runs the demo as a newcomer would: waits for its text, runs every request it prints, stops it with
# the signal that Ctrl-C sends. Arguments: demo.sh, then demo.sh's.
set -euo pipefail
demo=$(realpath "$1")
shift
cd "${TEST_TMPDIR:?}"
out=$PWD/demo.out
trap 'kill -KILL $running 2>/dev/null || true' EXIT
(cd "$TEST_SRCDIR/$TEST_WORKSPACE" && exec "$demo" "$@" --http-port=0 --grpc-port=0 \
  --metrics-port=0 --cache-dir="$TEST_TMPDIR/cache") >"$out" 2>"$out.log" &
running=$!
for _ in $(seq 1200); do
  grep -q "^Ctrl-C" "$out" && break
  kill -0 $running 2>/dev/null || { cat "$out.log"; exit 1; }
  sleep 0.1
done
count=0
while read -r line; do
  echo "+ $line"
  answer=$(eval "${line/#curl/curl --fail --silent --show-error}")
  echo "${answer:0:200}"
  [ -n "$answer" ]
  count=$((count + 1))
done < <(sed -n 's/^  //p' "$out")
[ "$count" -ge 6 ]
kill -TERM $running
wait $running
