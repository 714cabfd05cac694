// The node tests of the onnx package on the references: reference_test CASES LIST...
#include <span>

#include "gtest/gtest.h"
#include "kernels/op.h"
#include "tests/onnx_node/node_cases.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  return stampmill::RunNodeTests(
      argv[1], std::span(argv + 2, argv + argc),
      [](const stampmill::Graph& graph, std::span<const stampmill::Tensor> inputs) {
        return stampmill::Interpret(graph, inputs);
      });
}
