#!/bin/sh
# run_python.sh PYTHON PROGRAM ARGUMENTS...: what python_test starts. PYTHON is the environment's
# wrapper; its path relative to the runfiles begins with ../ or external/.
exec "$@"
