#!/bin/sh
# run_python.sh PYTHON PROGRAM ARGUMENTS...: what python_test starts, in the root of the runfiles.
# Imports are by workspace path: from tests import unittest_xml.
export PYTHONPATH="$PWD"
exec "$@"
