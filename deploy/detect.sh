#!/bin/bash
# Asks a running daemon what kind of file FILE is, with the model magika: a client in shell, for the
# demo. `--request` prints the request's JSON instead of sending it.
#
#   detect.sh [--request] FILE [URL [LABELS]]
#
# LABELS is magika's config.min.json; without it the label's number is printed.
set -euo pipefail

request_only=
if [ "${1:-}" = --request ]; then request_only=1; shift; fi
file=${1:?usage: detect.sh [--request] FILE [URL [LABELS]]}
url=${2:-http://127.0.0.1:8000}
labels=${3:-}

# The model reads 2048 numbers: the first 1024 bytes of the file's beginning (its first 4096 bytes
# without leading blanks) and the last 1024 of its end (likewise), each padded with 256.
numbers() { od -An -v -t u1 -w1 | awk '{ print $1 + 0 }'; }
begin() {
  head -c 4096 "$file" | numbers | awk '
    started || !($1 == 32 || ($1 >= 9 && $1 <= 13)) { started = 1; if (n < 1024) { print; n++ } }
    END { while (n < 1024) { print 256; n++ } }'
}
end() {
  tail -c 4096 "$file" | numbers | awk '
    { v[NR] = $1 }
    END {
      last = NR
      while (last > 0 && (v[last] == 32 || (v[last] >= 9 && v[last] <= 13))) last--
      first = last - 1023
      for (i = first; i < 1 && i <= last; i++) print 256
      for (i = (first < 1 ? 1 : first); i <= last; i++) print v[i]
    }'
}
head='{"inputs":[{"name":"bytes","shape":[1,2048],"datatype":"INT32","data":['
json=$head$({ begin; end; } | paste -sd,)']}]}'
if [ -n "$request_only" ]; then
  printf '%s\n' "$json"
  exit
fi

answer=$(curl -sS --fail-with-body -X POST --data-binary @- \
  "$url/v2/models/magika/infer" <<<"$json")
read -r index score < <(sed 's/.*"data":\[//; s/\].*//' <<<"$answer" | tr , '\n' |
  awk 'NR == 1 || $1 + 0 > best { best = $1 + 0; at = NR - 1 } END { print at, best }')
label=$index
if [ -n "$labels" ]; then
  label=$(tr -d ' \n' <"$labels" | sed 's/.*"target_labels_space":\[//; s/\].*//' | tr , '\n' |
    tr -d '"' | sed -n "$((index + 1))p")
fi
printf '%s: %s (%.0f %%)\n' "$file" "$label" "$(awk -v s="$score" 'BEGIN { print s * 100 }')"
