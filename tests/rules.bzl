"""Rules for tests: sanitized twins, fuzz targets, Python programs."""

_TSAN_FLAGS = ["-fsanitize=thread"]
_ASAN_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

# What clang needs at compile time and at link time, and what a run is told by its environment.
_SANITIZERS = {
    "asan": struct(
        copt = _ASAN_FLAGS,
        linkopt = _ASAN_FLAGS + ["-fsanitize-link-c++-runtime"],
        environment = {"UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
    "tsan": struct(
        copt = _TSAN_FLAGS,
        linkopt = _TSAN_FLAGS,
        environment = {
            "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:second_deadlock_stack=1",
        },
    ),
}

def _sanitize_impl(settings, attr):
    sanitizer = _SANITIZERS[attr.sanitizer]
    common = ["-g1", "-O1", "-fno-omit-frame-pointer"]
    copt = settings["//command_line_option:copt"]
    linkopt = settings["//command_line_option:linkopt"]
    return {
        "//command_line_option:copt": copt + common + sanitizer.copt,
        "//command_line_option:linkopt": linkopt + sanitizer.linkopt,
        "//tests:sanitizer": attr.sanitizer,
    }

_sanitize = transition(
    implementation = _sanitize_impl,
    inputs = [
        "//command_line_option:copt",
        "//command_line_option:linkopt",
    ],
    outputs = [
        "//command_line_option:copt",
        "//command_line_option:linkopt",
        "//tests:sanitizer",
    ],
)

def _sanitized_test_impl(ctx):
    # A transition on an attribute makes a list of it.
    test = ctx.attr.test[0][DefaultInfo]
    executable = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = executable,
        target_file = test.files_to_run.executable,
        is_executable = True,
    )
    return [
        DefaultInfo(
            executable = executable,
            runfiles = ctx.runfiles(files = [executable]).merge(test.default_runfiles),
        ),
        testing.TestEnvironment(_SANITIZERS[ctx.attr.sanitizer].environment),
    ]

_sanitized_test = rule(
    implementation = _sanitized_test_impl,
    attrs = {
        "sanitizer": attr.string(
            mandatory = True,
            values = _SANITIZERS.keys(),
        ),
        "test": attr.label(
            cfg = _sanitize,
            executable = True,
            mandatory = True,
        ),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    test = True,
)

def sanitized_twins(tsan = [], asan = [], size = "medium"):
    """Twins of this package's cc_tests, built with a sanitizer together with all they link.

    For each name N in `tsan` a test N_tsan (ThreadSanitizer), for each in `asan` a test N_asan
    (AddressSanitizer and UndefinedBehaviorSanitizer). They are `manual`, and collected in this
    package's suite `sanitized`, which belongs in //tests:sanitized. Arguments and environment of
    the cc_test are not carried over: a test that has a twin needs none.

    Args:
      tsan: names of cc_tests of this package that use threads.
      asan: names of cc_tests of this package that read bytes from outside or manage memory.
      size: how long the twins may take, as for any test.
    """
    twins = []
    for sanitizer, tests in [("tsan", tsan), ("asan", asan)]:
        for test in tests:
            twin = "%s_%s" % (test, sanitizer)
            twins.append(twin)
            _sanitized_test(
                name = twin,
                size = size,
                sanitizer = sanitizer,
                tags = ["manual"],
                test = test,
            )
    native.test_suite(
        name = "sanitized",
        tags = ["manual"],
        tests = twins,
    )

def fuzz_test(name, srcs, corpus, deps, size = "small"):
    """Two uses of one fuzz target, `srcs` with LLVMFuzzerTestOneInput.

    NAME is a test that feeds it every file of the corpus (and the empty input): any compiler, every
    run; it may have sanitized twins. NAME_libfuzzer is a `manual` program that searches for new
    inputs; build it with --config=fuzz.

    Args:
      name: of the test.
      srcs: the fuzz target.
      corpus: a folder of this package with inputs worth keeping, at least one.
      deps: what `srcs` needs.
      size: of the test.
    """
    native.cc_test(
        name = name,
        size = size,
        srcs = srcs + ["//tests:fuzz_replay.cc"],
        data = native.glob(
            [corpus + "/**"],
            allow_empty = False,
        ),
        local_defines = ['FUZZ_CORPUS=\\"%s/%s\\"' % (native.package_name(), corpus)],
        deps = deps + ["//third_party/gtest:gtest_main"],
    )
    native.cc_binary(
        name = name + "_libfuzzer",
        testonly = True,
        srcs = srcs,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )

def python_test(name, main, environment = "tests", args = [], data = [], **kwargs):
    """A test that is a Python program, run by an environment that bazelw made.

    It passes when `main` ends with status 0; tests/unittest_xml.py counts cases. Files of `data`
    lie under the working directory at their workspace paths, where Python files can also be
    imported from; `args` may name them with $(rootpath).

    Args:
      name: of the test.
      main: the program, a file.
      environment: which lock file of deploy/python/ it runs with; None is the system's Python.
      args: arguments for `main`.
      data: files and programs it reads or starts, other Python files that it imports.
      **kwargs: as for any test.
    """
    if environment:
        repository = ["@python_%s//:python" % environment]
        interpreter = "$(rootpath %s)" % repository[0]
    else:
        repository = []
        interpreter = "/usr/bin/python3"
    native.sh_test(
        name = name,
        srcs = ["//tests:run_python.sh"],
        args = [interpreter, "$(rootpath %s)" % main] + args,
        data = repository + [main, "//tests:unittest_xml.py"] + data,
        **kwargs
    )
