"""Runs one benchmark row by name (bench.sh says how)."""

import argparse
import importlib
import json
import os
import sys

ROWS = {
    "accuracy": ("answers", "answers of the models against onnxruntime without optimisations"),
    "latency": ("latency", "latency at batch 1, one and two threads, against onnxruntime"),
    "openvino": (
        "latency",
        "latency at batch 1 against OpenVINO in f32, where --peer-python has it",
    ),
    "batch8": ("latency", "time of a batch of 8, one thread, against onnxruntime"),
    "scaling": ("latency", "two threads against one"),
    "int8": ("latency", "int8 conversions of resnet and minilm3 against our own f32"),
    "bf16": ("latency", "resnet and minilm3 with --activation-precision=bf16 against f32"),
    "memory": ("loading", "peak resident memory against what onnxruntime's process grows by"),
    "gemm": ("kernels", "f32 matrix products as a share of the FMA peak"),
    "load": ("loading", "warm load against onnxruntime's session creation"),
    "start": ("loading", "exec to ready, and resident memory a second later"),
    "compile": ("loading", "cold compile with an empty cache"),
    "echo": ("serving", "64-byte echo: server CPU a request and p50 against a bare gRPC echo"),
    "shm": ("serving", "16 MiB through shared memory against HTTP, and bytes copied"),
    "batching": ("serving", "16 clients of one row against one client of 16 rows"),
    "shared-cores": ("serving", "throughput beside two busy loops against a quiet machine"),
    "steady": ("serving", "memory and allocations over a million requests"),
    "connections": ("serving", "others' latency beside idle and unreading clients"),
    "text-prefill": ("texts", "prefill of 512 tokens against llama.cpp's server"),
    "text-decode": ("texts", "decoding one stream against llama.cpp's server"),
    "text-streams": ("texts", "16 streams of 32 in, 64 out, against llama.cpp's server; memory"),
    "text-start": ("texts", "exec to the first chunk of a completion"),
    "text-prefix": ("texts", "first token behind a shared prefix of 512 tokens"),
    "text-shared-cores": ("texts", "decoding beside busy loops against a quiet machine"),
}


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rows:\n" + "\n".join("  %-18s %s" % (k, v[1]) for k, v in ROWS.items()),
    )
    parser.add_argument("row", choices=ROWS, metavar="ROW")
    parser.add_argument("--stampmill", default=os.path.join(root, "bazel-bin/server/stampmill"))
    parser.add_argument(
        "--grpc-echo", default=os.path.join(root, "bazel-bin/tests/peers/grpc_echo")
    )
    parser.add_argument(
        "--models", default="", help="comma-separated names; default: all of the row"
    )
    parser.add_argument("--cpu-isa", default="", help="class of our code, for int8 and bf16")
    parser.add_argument("--peer-python", default=sys.executable, help="for openvino")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="", help="also writes the results to this file")
    options = parser.parse_args()
    module = importlib.import_module(ROWS[options.row][0])
    rows = getattr(module, options.row.replace("-", "_"))(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"row": options.row, "rows": rows}, file, indent=1)
    failed = [row for row in rows if row.get("must") is False]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
