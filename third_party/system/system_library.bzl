"""A library of the distribution: headers in /usr/include, so nothing but link options."""

def system_library(name, libs = [], deps = []):
    """Declares a public target for an installed library.

    Args:
      name: the target's name.
      libs: names as the linker's -l takes them, dependents first. Those that a program does not
        use are left out of it (--as-needed), so a generous list costs nothing at start.
      deps: other system libraries that its headers need.
    """
    linkopts = ["-l" + lib for lib in libs]
    if linkopts:
        linkopts = ["-Wl,--push-state,--as-needed"] + linkopts + ["-Wl,--pop-state"]
    native.cc_library(
        name = name,
        linkopts = linkopts,
        visibility = ["//visibility:public"],
        deps = deps,
    )
