#!/bin/bash
# The demo: starts the daemon on two real small models, one that tells kinds of files and one that
# chats, prints requests to paste; Ctrl-C stops it.
#
#   demo.sh STAMPMILL MAGIKA LABELS DETECT SMOLLM2 CHAT [FLAG...]
#
# Further flags go to `stampmill serve`.
set -euo pipefail

stampmill=$(realpath "$1")
magika=$(realpath "$2") labels=$(realpath "$3") detect=$(realpath "$4")
smollm2=$(realpath "$5") chat=$(realpath "$6")
shift 6
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# In a session of its own: Ctrl-C is for this script, which passes one signal on. A second one would
# end the daemon at once.
setsid "$stampmill" serve "magika=$magika" "smollm2=$smollm2" --port-file="$scratch/ports" "$@" &
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
hello='{"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}], "stream": true}'
cat <<TXT

Serving magika, which tells what kind of file some bytes are, and smollm2, which chats, on $url.
Try, in another terminal:

  $chat "Why is the sky blue?" $url
  curl -N $url/v1/chat/completions -d '$hello'
  $detect $labels $url $labels
  curl $url/v2/health/ready
  curl $url/v2/models/magika
  curl -X POST --data-binary @$scratch/request.json $url/v2/models/magika/infer
  curl $url/v2/models/magika/stats
  curl $url/v1/models
  curl $url/metrics

Ctrl-C finishes what is running and stops.
TXT

while kill -0 "$daemon" 2>/dev/null; do
  wait "$daemon" && status=0 || status=$?
done
exit "${status:-0}"
