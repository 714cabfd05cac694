// The node tests of the onnx package on the lowerings: every node of a model is inferred, lowered
// and run by the nest interpreter, without a compiler. Twice: with the shapes of the case, and with
// a symbol for every extent, as a model with dynamic dims has.
#include <span>
#include <string>

#include "gtest/gtest.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/lowered_run.h"
#include "tests/onnx_node/node_cases.h"

// lowered_test fixed|symbolic CASES LIST...
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  const bool is_symbolic = std::string(argv[1]) == "symbolic";
  return stampmill::RunNodeTests(
      argv[2], std::span(argv + 3, argv + argc),
      [&](const stampmill::Graph& graph, std::span<const stampmill::Tensor> inputs) {
        return stampmill::RunForms(graph, inputs, {.is_symbolic = is_symbolic},
                                   stampmill::RunLowered);
      });
}
