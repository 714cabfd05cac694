#include "devices/testing/test_kernels.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace stampmill {

absl::StatusOr<Artifact> TestKernels() { return TestKernels(TestKernelsOptions()); }

absl::StatusOr<Artifact> TestKernels(const TestKernelsOptions& options) {
  ASSIGN_OR_RETURN(const std::string code,
                   ReadFile(options.next_abi_version ? "devices/testing/test_kernels_next_abi.so"
                                                     : "devices/testing/test_kernels.so"));
  constexpr char kSource[] = "test kernels of the device layer";
  Digest source;
  static_assert(sizeof(kSource) - 1 == sizeof(source.bytes));
  memcpy(source.bytes.data(), kSource, source.bytes.size());
  if (options.wrong_source_digest) source.bytes[0] ^= 1;
  auto bytes = std::make_shared<const std::string>(
      Artifact::Serialize(options.target, source, AsBytes(code)));
  return Artifact::Parse(AsBytes(*bytes), bytes);
}

}  // namespace stampmill
