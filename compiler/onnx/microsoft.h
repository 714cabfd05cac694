// Operators of domain com.microsoft that converters and ONNX Runtime's offline optimiser write,
// said in operators of the default domain: quantised forms as dequantising, computing and
// quantising, which fuse; fused forms as their parts.
#pragma once

#include "absl/status/status.h"
#include "compiler/onnx/upgrade.h"

namespace stampmill {

// Leaves operators that it does not know as they are. UNIMPLEMENTED for attributes that have no
// equal, INVALID_ARGUMENT for missing inputs; both name the node.
absl::Status RewriteMicrosoftNode(NodeDraft& draft);

}  // namespace stampmill
