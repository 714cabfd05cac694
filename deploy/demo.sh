#!/bin/bash
# The demo: starts the daemon on a real small model, prints requests to paste; Ctrl-C stops it.
#
#   demo.sh STAMPMILL MODEL LABELS DETECT [FLAG...]
#
# Further flags go to `stampmill serve`.
set -euo pipefail

stampmill=$(realpath "$1") model=$(realpath "$2") labels=$(realpath "$3") detect=$(realpath "$4")
shift 4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# In a session of its own: Ctrl-C is for this script, which passes one signal on. A second one would
# end the daemon at once.
setsid "$stampmill" serve "magika=$model" --port-file="$scratch/ports" "$@" &
daemon=$!
trap 'kill -TERM $daemon 2>/dev/null || true' INT TERM

while [ ! -s "$scratch/ports" ]; do
  kill -0 "$daemon" 2>/dev/null || { wait "$daemon" || exit $?; exit 1; }
  sleep 0.05
done
port=$(sed 's/.*"http_port": *\([0-9]*\).*/\1/' "$scratch/ports")
url=http://127.0.0.1:$port
until curl -s -o /dev/null --fail "$url/v2/health/ready"; do
  kill -0 "$daemon" 2>/dev/null || { wait "$daemon" || exit $?; exit 1; }
  sleep 0.05
done

"$detect" --request "$detect" >"$scratch/request.json"
cat <<TXT

Serving magika, which tells what kind of file some bytes are, on $url. Try, in another terminal:

  curl $url/v2/health/ready
  curl $url/v2/models/magika
  curl -X POST --data-binary @$scratch/request.json $url/v2/models/magika/infer
  $detect $labels $url $labels
  curl $url/v2/models/magika/stats
  curl $url/metrics

Ctrl-C finishes what is running and stops.
TXT

while kill -0 "$daemon" 2>/dev/null; do
  wait "$daemon" && status=0 || status=$?
done
exit "${status:-0}"
