#include "compiler/compiler_abi.h"

#include <algorithm>

#include "compiler/compiler_abi_digest.inc"

namespace stampmill {

Digest CompilerAbi() {
  Digest digest;
  std::copy(std::begin(kCompilerSourcesSha256), std::end(kCompilerSourcesSha256),
            digest.bytes.begin());
  return digest;
}

}  // namespace stampmill
