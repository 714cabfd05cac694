// Any bytes as a .npy file: refused, or a tensor that is written and read again alike.
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "server/cli/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const auto tensor = ParseNpy(std::as_bytes(std::span(data, size)));
  if (!tensor.ok()) return 0;
  const auto again = ParseNpy(AsBytes(SerializeNpy(*tensor)));
  CHECK_OK(again);
  CHECK(again->shape() == tensor->shape());
  CHECK(AsText(again->bytes()) == AsText(tensor->bytes()));
  return 0;
}
