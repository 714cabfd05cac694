// The compiler's version as content: a digest of the sources that decide what compiled models are
// (graph, kernels, compiler, the formats of devices), taken at build time. What another build of
// them compiled is never found in a cache. Known to the daemon and to libstampmill_compiler.so.
#pragma once

#include "base/hash.h"

namespace stampmill {

Digest CompilerAbi();

}  // namespace stampmill
