"""Repositories that link to the Python environments which bazelw makes in .venv/."""

def _wrapper(repository_ctx, name, program, environment, packages, stamp):
    repository_ctx.file(name, """#!/bin/sh
# The lock file of this environment has the hash {stamp}.
unset PYTHONHOME
export PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH={libraries}
exec {program} "$@"
""".format(
        libraries = ":".join(["%s/%s" % (packages, p) for p in repository_ctx.attr.library_path]),
        program = str(environment) + "/" + program,
        stamp = stamp,
    ))

def _python_environment_impl(repository_ctx):
    # The lock file is an input: when it changes, this runs again, and so do the tests.
    lock = repository_ctx.path(repository_ctx.attr.lock)
    name = lock.basename[:-len(".lock")]
    environment = lock.dirname.dirname.dirname.get_child(".venv").get_child(name)
    if not environment.get_child("made-from.lock").exists:
        fail("%s is not there or not complete: run ./bazelw instead of bazel, once" % environment)

    # lib/ holds one folder, python3.N, whatever N the distribution has.
    packages = environment.get_child("lib").readdir()[0].get_child("site-packages")
    stamp = hash(repository_ctx.read(lock))
    for program in ["python"] + repository_ctx.attr.programs:
        _wrapper(repository_ctx, program, "bin/" + program, environment, packages, stamp)
    for link, path in repository_ctx.attr.files.items():
        repository_ctx.symlink(str(packages) + "/" + path, link)
    repository_ctx.file("BUILD", "exports_files(%s)\n" % repr(
        ["python"] + repository_ctx.attr.programs + repository_ctx.attr.files.keys(),
    ))

python_environment = repository_rule(
    implementation = _python_environment_impl,
    doc = """`python`, further programs, and files of one environment, as targets.

An environment that has not been made is an error only of what depends on it.""",
    attrs = {
        "files": attr.string_dict(doc = "target name -> path below site-packages"),
        "library_path": attr.string_list(doc = "LD_LIBRARY_PATH of programs, below site-packages"),
        "lock": attr.label(allow_single_file = True, mandatory = True),
        "programs": attr.string_list(doc = "names in the environment's bin/"),
    },
    local = True,
)
