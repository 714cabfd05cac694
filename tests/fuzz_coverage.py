#!/usr/bin/python3
"""What the fuzz targets' corpora reach of their parsers.

    tests/fuzz_coverage.py                        # all fuzz targets
    tests/fuzz_coverage.py //runtime:model_config_fuzz --missed

Builds the replays with --config=coverage, runs each by itself, and prints for every file of its
parser the share of lines that the corpus executes; --missed also prints the lines that it does not.
Exits with 1 when a parser is below the bound, or when a fuzz target is not in the table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BOUND = 0.8

# Fuzz target -> the files that parse what it feeds in.
PARSERS = {
    "//compiler/cache:cache_fuzz": ["cache_archive.cc", "model_record.cc", "object_file.cc"],
    "//compiler/onnx:onnx_fuzz": [
        "importer.cc",
        "reader.cc",
        "tensor_data.cc",
        "upgrade.cc",
        "wire_reader.cc",
    ],
    "//compiler/program:program_fuzz": ["program.cc", "program_verify.cc"],
    "//compiler/worker:protocol_fuzz": ["protocol.cc"],
    "//devices:artifact_fuzz": ["artifact.cc", "target.cc"],
    "//graph:nest_fuzz": ["nest_bytes.cc"],
    "//runtime:model_config_fuzz": ["model_config.cc"],
    "//server/cli:command_line_fuzz": ["command_line.cc"],
    "//server/grpc:grpc_infer_fuzz": ["grpc_infer.cc", "../wire.cc"],
    "//server/http:http_server_fuzz": ["compression.cc", "http_server.cc"],
    "//server/http:http_service_fuzz": ["http_service.cc"],
    "//server/http:json_infer_fuzz": ["json_infer.cc"],
    "//server/http:json_text_fuzz": ["json_text.cc"],
    "//server/cli:npy_fuzz": ["npy.cc"],
    "//text:chat_template_fuzz": [
        "jinja_evaluate.cc",
        "jinja_expressions.cc",
        "jinja_filters.cc",
        "jinja_format.cc",
        "jinja_functions.cc",
        "jinja_interpreter.cc",
        "jinja_lexer.cc",
        "jinja_methods.cc",
        "jinja_operators.cc",
        "jinja_parser.cc",
        "jinja_print.cc",
        "jinja_scopes.cc",
        "jinja_sequence_filters.cc",
        "jinja_tests.cc",
        "jinja_text.cc",
        "jinja_value.cc",
    ],
    "//text:grammar_fuzz": ["gbnf.cc", "grammar_builder.cc", "grammar_matcher.cc", "token_trie.cc"],
}


def run(*command, **keywords):
    return subprocess.run(command, cwd=ROOT, check=True, **keywords).stdout


def fuzz_targets():
    """What the tree declares, however the table has it."""
    found = run(
        "bazel",
        "query",
        "--noshow_progress",
        "attr(generator_function, '^fuzz_test$', kind(cc_test, //...))",
        stdout=subprocess.PIPE,
        text=True,
    )
    return set(found.split())


def path_of(target, name):
    return os.path.normpath(target[2:].split(":")[0] + "/" + name)


def replay(target, folder):
    """Runs the corpus through `target`; its program and the profile of that run."""
    program = os.path.join(ROOT, "bazel-bin", target[2:].replace(":", "/"))
    raw, profile = os.path.join(folder, "raw"), os.path.join(folder, "profile")
    environment = dict(os.environ, LLVM_PROFILE_FILE=raw, TEST_TMPDIR=folder)
    # In the folder that a test runs in.
    done = subprocess.run(
        [program],
        cwd=program + ".runfiles/stampmill",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (target, done.stdout.decode(errors="replace")))
    run("llvm-profdata-19", "merge", "-o", profile, raw)
    return program, profile


def lines_of(program, profile, paths):
    """path -> (lines covered, lines) of the files of one parser."""
    text = run(
        "llvm-cov-19",
        "export",
        "-summary-only",
        program,
        "-instr-profile=" + profile,
        stdout=subprocess.PIPE,
    )
    counts = {}
    for file in json.loads(text)["data"][0]["files"]:
        for path in paths:
            if file["filename"].endswith("/" + path):
                lines = file["summary"]["lines"]
                counts[path] = (lines["covered"], lines["count"])
    return counts


def print_missed(program, profile, paths):
    options = ["-instr-profile=" + profile, "-path-equivalence=/proc/self/cwd," + ROOT]
    text = run("llvm-cov-19", "show", program, *options, *paths, stdout=subprocess.PIPE, text=True)
    for line in text.splitlines():
        count = line.split("|")[1:2]
        if not count or count[0].strip() == "0":
            print("  " + line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="fuzz targets (default: all)")
    parser.add_argument("--missed", action="store_true", help="print the lines not executed")
    arguments = parser.parse_args()

    problems = [
        "%s: not in the table of %s" % (target, os.path.relpath(__file__, ROOT))
        for target in sorted(fuzz_targets() ^ set(PARSERS))
    ]
    targets = arguments.targets or sorted(PARSERS)
    run("bazel", "build", "--noshow_progress", "--config=coverage", *targets)
    for target in targets:
        paths = [path_of(target, name) for name in PARSERS[target]]
        with tempfile.TemporaryDirectory() as folder:
            program, profile = replay(target, folder)
            counts = lines_of(program, profile, paths)
            if arguments.missed:
                print_missed(program, profile, paths)
        for path in paths:
            covered, lines = counts.get(path, (0, 0))
            share = covered / lines if lines else 0
            print("%5.1f %%  %4d of %4d lines  %s" % (100 * share, covered, lines, path))
            if share < BOUND:
                problems.append("%s: %s is below %.0f %%" % (target, path, 100 * BOUND))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
