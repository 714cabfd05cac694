#!/usr/bin/python3
"""Applies the rules of tidy.py to the working tree, and each rule to an example that breaks it."""

import os
import subprocess
import unittest

from tests import tidy
from tests import unittest_xml

# A symlink in the runfiles: where it points is the working tree.
ROOT = os.path.dirname(os.path.realpath("WORKSPACE"))


class Tree(unittest.TestCase):
    """The working tree as it is."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.sources = tidy.read_sources(ROOT)

    def expect_none(self, problems):
        self.assertEqual([], problems, "\n" + "\n".join(problems))

    def test_sources_are_found(self):
        paths = {source.path for source in self.sources}
        self.assertLessEqual({"base/check.h", "tests/tidy.py", "README.md", ".bazelrc"}, paths)

    def test_layers(self):
        self.expect_none(tidy.check_layers(self.sources))
        self.expect_none(tidy.check_type_names(self.sources))

    def test_confined_headers(self):
        self.expect_none(tidy.check_confined_headers(self.sources))

    def test_base_is_closed(self):
        self.expect_none(tidy.check_base_is_closed(self.sources))

    def test_columns(self):
        self.expect_none(tidy.check_columns(self.sources))

    def test_white_space(self):
        self.expect_none(tidy.check_white_space(self.sources))

    def test_names(self):
        self.expect_none(tidy.check_names(self.sources))

    def test_text(self):
        self.expect_none(tidy.check_text(self.sources))

    def test_headers(self):
        self.expect_none(tidy.check_headers(self.sources))

    def test_lengths(self):
        with open(os.path.join(ROOT, "tests/long_pieces.txt"), encoding="utf-8") as file:
            self.expect_none(tidy.check_lengths(self.sources, file.read()))

    def test_documents(self):
        self.expect_none(tidy.check_documents(self.sources))

    def test_labels(self):
        self.expect_none(tidy.check_labels(self.sources))

    def test_sanitized_suite(self):
        self.expect_none(tidy.check_sanitized_suite(self.sources))

    def test_format(self):
        files = [
            os.path.join(ROOT, source.path)
            for source in self.sources
            if source.is_cpp() and not source.path.startswith("third_party/")
        ]
        done = subprocess.run(
            ["clang-format-19", "--dry-run", "--Werror", "--ferror-limit=1", *files],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        wrong = {line.split(":")[0] for line in done.stderr.split("\n") if ": error:" in line}
        names = [os.path.relpath(path, ROOT) for path in sorted(wrong)]
        self.assertEqual(done.returncode, 0, "clang-format-19 -i " + " ".join(names))


def problems_of(check, *arguments, **files):
    """Runs a check on made-up files, keyed by path with __ for / and _dot_ for the dot."""
    sources = [
        tidy.Source(path.replace("__", "/").replace("_dot_", "."), text)
        for path, text in files.items()
    ]
    return check(sources, *arguments)


class Rules(unittest.TestCase):
    """Each rule finds what it is there to find, and leaves the like alone."""

    def test_layers_refuse_an_include_upwards(self):
        check = tidy.check_layers
        graph, cpu = '#include "graph/op.h"\n', '#include "devices/cpu/a.h"\n'
        self.assertEqual([], problems_of(check, kernels__a_dot_h=graph))
        self.assertEqual(1, len(problems_of(check, graph__a_dot_h='#include "kernels/op.h"\n')))
        self.assertEqual(1, len(problems_of(check, devices__a_dot_h=graph)))
        self.assertEqual(1, len(problems_of(check, base__a_dot_cc=graph)))
        self.assertEqual(1, len(problems_of(check, text__a_dot_h=graph)))
        text = '#include "text/a.h"\n'
        self.assertEqual([], problems_of(check, server__a_dot_cc=text))
        self.assertEqual(1, len(problems_of(check, graph__a_dot_h=text)))
        self.assertEqual(1, len(problems_of(check, server__a_dot_cc=cpu)))

    def test_layers_let_the_compiler_see_formats_of_devices_only(self):
        check = tidy.check_layers
        target, device = '#include "devices/target.h"\n', '#include "devices/device.h"\n'
        self.assertEqual([], problems_of(check, compiler__a_dot_cc=target))
        self.assertEqual(1, len(problems_of(check, compiler__a_dot_cc=device)))
        isa = '#include "devices/npu/isa.h"\n'
        self.assertEqual([], problems_of(check, compiler__npu__a_dot_cc=isa))
        self.assertEqual(1, len(problems_of(check, compiler__onnx__a_dot_cc=isa)))

    def test_a_type_has_its_name_alone(self):
        check = tidy.check_type_names
        text = "struct Scope {\n  int a;\n};\n"
        self.assertEqual(1, len(problems_of(check, graph__a_dot_h=text, text__b_dot_h=text)))
        declared = "struct Scope;\nstruct Scope::Inner {\n};\n"
        self.assertEqual([], problems_of(check, graph__a_dot_h=text, text__b_dot_h=declared))

    def test_layers_keep_devices_apart(self):
        text = '#include "devices/device.h"\n#include "devices/npu/a.h"\n'
        problems = problems_of(tidy.check_layers, devices__cpu__a_dot_cc=text)
        self.assertEqual(1, len(problems))
        self.assertIn("a.cc:2:", problems[0])

    def test_confined_headers_stay_in_their_folders(self):
        check = tidy.check_confined_headers
        grpc = "#include <grpcpp/grpcpp.h>\n"
        self.assertEqual([], problems_of(check, server__a_dot_cc=grpc))
        self.assertEqual(1, len(problems_of(check, runtime__a_dot_cc=grpc)))
        llvm = '#include "llvm/IR/Module.h"\n'
        self.assertEqual([], problems_of(check, compiler__llvm__a_dot_cc=llvm))
        self.assertEqual(1, len(problems_of(check, compiler__passes__a_dot_cc=llvm)))

    def test_base_takes_no_new_file(self):
        self.assertEqual([], problems_of(tidy.check_base_is_closed, base__log_test_dot_cc=""))
        self.assertEqual(1, len(problems_of(tidy.check_base_is_closed, base__strings_dot_h="")))

    def test_columns_are_counted_in_code(self):
        self.assertEqual(1, len(problems_of(tidy.check_columns, a_dot_cc="x" * 101)))
        fine = problems_of(tidy.check_columns, a_dot_cc="ä" * 100, a_dot_md="x" * 200)
        self.assertEqual([], fine)

    def test_white_space_is_plain(self):
        self.assertEqual(2, len(problems_of(tidy.check_white_space, a_dot_cc="x \n\ty\n")))
        self.assertEqual(1, len(problems_of(tidy.check_white_space, a_dot_cc="x")))

    def test_names_say_something(self):
        check = tidy.check_names
        for name in ("CacheManager", "StringUtil", "OpHelper", "OpBase", "QueueImpl", "CommonOps"):
            self.assertEqual(1, len(problems_of(check, a_dot_h="class %s {\n" % name)), name)
            self.assertEqual(1, len(problems_of(check, a_dot_h="  using %s = int;\n" % name)), name)
        for name in ("DeviceManager", "Database", "Utilisation", "Implicit", "Managed"):
            self.assertEqual([], problems_of(check, a_dot_h="struct %s {\n" % name), name)
        self.assertEqual(1, len(problems_of(check, string_util_dot_cc="")))
        self.assertEqual([], problems_of(check, base__utilisation_dot_cc=""))

    def test_text_has_no_notes_to_oneself(self):
        for text in tidy.BANNED_TEXT + ["deci" + "sion 12"]:
            self.assertEqual(1, len(problems_of(tidy.check_text, a_dot_md="\nsee %s.\n" % text)))

    def test_headers_are_introduced(self):
        good = (
            "// A thing.\n#pragma once\n\n"
            "void F(absl::string_view a);  // not std::string_view\n"
        )
        self.assertEqual([], problems_of(tidy.check_headers, base__a_dot_h=good))
        self.assertEqual(2, len(problems_of(tidy.check_headers, base__a_dot_h="void F();\n")))
        bad = good.replace("absl::", "std::")
        self.assertEqual(1, len(problems_of(tidy.check_headers, base__a_dot_h=bad)))

    def test_lengths_find_long_functions_and_hold_the_ratchet(self):
        body = "  if (x) {\n    y();\n  }\n" * 30
        text = "namespace {\n\nint Long(int a,\n         int b) {\n%s}\n\nvoid F() {\n}\n}\n" % body
        check = tidy.check_lengths
        self.assertEqual(1, len(problems_of(check, "", a_dot_cc=text)))
        self.assertIn("Long has 93 lines", problems_of(check, "", a_dot_cc=text)[0])
        self.assertEqual([], problems_of(check, "# why\na.cc Long 93\n", a_dot_cc=text))
        self.assertEqual(1, len(problems_of(check, "a.cc Long 92\n", a_dot_cc=text)))
        self.assertEqual(1, len(problems_of(check, "a.cc F 99\n", a_dot_cc="")))

    def test_lengths_see_members_constructors_and_tests(self):
        body = "    y();\n" * 71
        for head, name in (
            ("class A {\n  A() : a_(1), b_{2} {\n%s  }\n};\n", "A"),
            ("absl::StatusOr<int> A::Run(int x) const {\n%s}\n", "A::Run"),
            ("TEST(A, DoesIt) {\n%s}\n", "A.DoesIt"),
            ("template <typename T>\nvoid F(T t) {\n%s}\n", "F"),
        ):
            problems = problems_of(tidy.check_lengths, "", a_dot_cc=head % body)
            self.assertEqual(1, len(problems), head)
            self.assertIn(" %s has 73 lines" % name, problems[0])
        lambdas = "auto f = [](int x) {\n%s};\nclass B {\n%s};\n" % (body, body)
        self.assertEqual([], problems_of(tidy.check_lengths, "", a_dot_cc=lambdas))

    def test_lengths_see_python_and_files(self):
        python = "def f():\n" + "    x = 1\n" * 70
        self.assertEqual(1, len(problems_of(tidy.check_lengths, "", a_dot_py=python)))
        self.assertEqual(1, len(problems_of(tidy.check_lengths, "", a_dot_cc="\n" * 801)))
        self.assertEqual([], problems_of(tidy.check_lengths, "", a_dot_cc="\n" * 800))

    def test_documents_name_every_folder(self):
        sources = [
            tidy.Source("ARCHITECTURE.md", "`graph/` is\n"),
            tidy.Source("README.md", "x\n"),
            tidy.Source("graph/a.h", ""),
        ]
        self.assertEqual([], tidy.check_documents(sources))
        self.assertEqual(1, len(tidy.check_documents(sources + [tidy.Source("new/a.h", "")])))
        self.assertEqual(1, len(tidy.check_documents(sources[:1])))
        long_readme = sources[:1] + [tidy.Source("README.md", "x\n" * 121)]
        self.assertEqual(1, len(tidy.check_documents(long_readme)))

    def test_labels_name_targets_that_there_are(self):
        build = tidy.Source("a/b/BUILD", 'name = "c_test",\nname = "d_v3_test"\n')
        good = "//a/b:c_test `//a/b:c_test_tsan` //a/b:d_*_test //a/... http://a/b:1"
        self.assertEqual([], tidy.check_labels([build, tidy.Source("x.md", good)]))
        for bad in ("//a/b:c_tes", "//a:c_test", "//a/b:x_*_test"):
            self.assertEqual(1, len(tidy.check_labels([build, tidy.Source("x.md", bad)])), bad)

    def test_sanitized_suite_is_complete(self):
        twins = tidy.Source("graph/BUILD", "\nsanitized_twins(tsan = [])\n")
        suite = tidy.Source("tests/BUILD", '"//graph:sanitized",\n')
        self.assertEqual([], tidy.check_sanitized_suite([twins, suite]))
        self.assertEqual(1, len(tidy.check_sanitized_suite([twins])))


if __name__ == "__main__":
    unittest_xml.main()
