// Bytes of stages from anywhere: refused, or a stage that verifies, prints, and whose own bytes
// give the same bytes again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/nest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const absl::StatusOr<StageBody> body =
      ParseCanonicalBytes(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  CHECK_OK(Verify(*body));
  ToString(*body);
  std::vector<DimExpr> dims;
  const std::string bytes = CanonicalBytes(*body, &dims);
  const absl::StatusOr<StageBody> again = ParseCanonicalBytes(bytes);
  CHECK_OK(again);
  CHECK_EQ(CanonicalBytes(*again, &dims), bytes);
  return 0;
}
