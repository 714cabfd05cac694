#!/bin/bash
# Benchmarks beside the peers, one row of BENCHMARKS.md a call:
#
#   tests/peers/bench.sh ROW [FLAG...]
#
# `tests/peers/bench.sh --help` lists the rows and flags. The call builds the optimised daemon, and
# uses the Python environments that bazelw makes from deploy/python (onnxruntime, llama.cpp, the
# models, the clients and perf_analyzer; versions and hashes locked). Contenders of one row
# alternate in one run; results are ratios. Nothing here is part of `bazel test //...`.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
(cd "$root" && ./bazelw build //server:stampmill //tests/peers:grpc_echo >&2)
environment=tests
case "${1:-}" in text-*) environment=language ;; esac
exec "$root/.venv/$environment/bin/python" "$root/tests/peers/bench.py" "$@"
