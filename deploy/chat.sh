#!/bin/bash
# Asks a running daemon's language model one question and prints the answer as it is written: a
# client of the OpenAI API in shell, for the demo.
#
#   chat.sh QUESTION [URL [MODEL]]
set -euo pipefail

question=${1:?usage: chat.sh QUESTION [URL [MODEL]]}
url=${2:-http://127.0.0.1:8000}
model=${3:-smollm2}

# In a JSON string.
question=${question//\\/\\\\}
question=${question//\"/\\\"}
question=${question//$'\t'/\\t}
question=${question//$'\n'/\\n}

# Each event is one line `data: JSON` with a piece of the text, whose escapes printf's %b
# knows, but for that of quotes.
ask() {
  curl -sSN --fail-with-body "$url/v1/chat/completions" --data-binary @- <<JSON
{"model": "$model", "temperature": 0, "max_tokens": 200, "stream": true,
 "messages": [{"role": "user", "content": "$question"}]}
JSON
}
ask | while IFS= read -r line; do
  if [[ $line =~ \"content\":\"(([^\"\\]|\\.)*)\" ]]; then
    printf '%b' "${BASH_REMATCH[1]//\\\"/\"}"
  elif [[ $line =~ \"error\" ]]; then
    printf '%s\n' "$line" >&2
    exit 1
  fi
done
echo
