// Control flow, resolved: a graph whose If, Loop and Scan have become parts of the graph itself or
// the forms that lowering takes (kernels/control.cc), with shapes.
//
//   - An If whose condition is fixed is replaced by its branch.
//   - A condition that is an expression of a request's dims or of elements of small integer inputs
//     leaves both branches, under that condition; results have the shapes of the branch taken.
//     Where branches differ in rank, what follows the If in its graph becomes part of both. A
//     branch that can be right for no request is left out, and requests that would take it are
//     refused.
//   - A Loop or Scan becomes a Repeat. What it carries unchanged, or by adding a fixed step, is
//     known in every iteration; a condition that follows from the number of iterations alone is
//     left out. Where it follows from data the host reads it.
#pragma once

#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace stampmill {

// Infers shapes on the way, as InferShapes does. Elements of small integer and bool inputs are
// followed where shapes or conditions depend on them: they are then value symbols of the result.
// UNIMPLEMENTED for control flow that it has no form for, naming the node and why; otherwise as
// InferShapes.
absl::StatusOr<Graph> ResolveControlFlow(const Graph& graph);

// The graph with `pass` applied to it and to all bodies of resolved control flow in it.
using GraphPass = std::function<absl::Status(Graph& graph)>;
absl::Status ApplyToBodies(Graph& graph, GraphPass pass);

// Conditions that bodies make on requests become conditions of the graph, as far as they are taken.
void CollectBodyChecks(Graph& graph);

}  // namespace stampmill
