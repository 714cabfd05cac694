// What control_flow.cc and resolve_loops.cc share: graphs under construction, and the resolver that
// builds them. Internal to the passes.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"

namespace stampmill {

// Iterations of a loop that nothing limits.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// A graph under construction.
struct GraphScope {
  Graph graph;
  GraphScope* outer = nullptr;                       // of a body: the graph around it
  absl::flat_hash_map<ValueId, ValueId> captured{};  // value of the outer graph to its own
  std::vector<ValueId> captures{};  // values of the outer graph, in order of inputs
};

// A value of a graph under construction; id may be kNoValue.
struct Ref {
  GraphScope* scope = nullptr;
  ValueId id = kNoValue;
};

// Where the values of a source graph are; absent: not made yet.
using Places = std::vector<std::optional<Ref>>;

bool MentionsSymbol(const DimExpr& e, absl::string_view symbol);

// The graph that is this attribute; null when there is none.
const Graph* BodyOf(const Node& node, absl::string_view name);
// INVALID_ARGUMENT and UNIMPLEMENTED, beginning with the node's description.
absl::Status NodeError(const Node& node, absl::string_view message);
absl::Status NodeUnsupported(const Node& node, absl::string_view message);

// A body that is done: its graph, and what it captures of the graph around it.
struct Finished {
  std::shared_ptr<const Graph> graph;
  std::vector<ValueId> captures;
};

class Resolver {
 public:
  absl::StatusOr<Graph> Run(const Graph& source, const std::vector<bool>& followed);

 private:
  // Makes the nodes of `source` from the one at `position` on in `scope`; gives its outputs.
  absl::StatusOr<std::vector<Ref>> Build(const Graph& source, Places places, size_t position,
                                         GraphScope& scope);
  absl::Status CopyNode(const Graph& source, const Node& node, Places& places, GraphScope& scope);

  ValueId Use(const Ref& ref, GraphScope& scope);
  Ref Find(const Graph& source, ValueId id, Places& places, GraphScope& scope);

  // Nodes that resolving makes.
  ValueId AddOperator(Node node, Value output, GraphScope& scope);
  ValueId AddDims(const DimExpr& dim, GraphScope& scope);
  // The same of a list, as a vector.
  ValueId AddShape(const Shape& dims, GraphScope& scope);
  // `id`, of one element, as the host reads it; at most `limit`.
  ValueId AddRead(ValueId id, int64_t limit, GraphScope& scope);
  // The one element of a condition (limit 1) or count; read by the host where it is not known.
  absl::StatusOr<DimExpr> Scalar(const Node& node, ValueId id, int64_t limit, GraphScope& scope);

  Finished Finish(GraphScope& scope, const std::vector<Ref>& outputs);

  // If. A result only when the rest of `source` has been made with it: all outputs of `source`.
  using Outputs = std::optional<std::vector<Ref>>;
  absl::StatusOr<Outputs> ResolveIf(const Graph& source, const Node& node, Places& places,
                                    size_t position, GraphScope& scope);
  struct Branch {
    const Graph* body = nullptr;
    std::unique_ptr<GraphScope> scope{};
    absl::StatusOr<std::vector<Ref>> results{};
  };
  Places BranchPlaces(const Graph& source, const Node& node, const Graph& body, Places& places,
                      GraphScope& scope);
  void BuildBranch(const Graph& source, const Node& node, Places& places, GraphScope& scope,
                   std::optional<size_t> rest, Branch& branch);
  absl::Status TakeBranch(const Graph& source, const Node& node, Places& places, GraphScope& scope,
                          const Graph& body);
  static bool Agree(Branch& a, Branch& b);
  absl::StatusOr<std::vector<Ref>> MergeBranches(const Node& node, const DimExpr& condition,
                                                 Branch& then_branch, Branch& else_branch,
                                                 GraphScope& scope);

  // Loop and Scan.
  struct Carried {
    Ref start{};
    ValueId source_input = kNoValue, source_output = kNoValue;  // of the body's source
    std::optional<std::vector<DimExpr>> start_contents{}, step_contents{};
  };
  struct Scanned {
    ValueId id = kNoValue;  // in the scope around, rows along axis 0
    bool reversed = false;
    ValueId source_input = kNoValue;
  };
  struct Repeat {
    const Graph* source = nullptr;  // of the body
    Places places{};                // of the body's source, captures and fixed inputs bound
    std::vector<Carried> carried{};
    std::vector<Scanned> scanned{};
    std::vector<ValueId> source_results{};  // outputs of the body's source that make rows
    std::vector<int64_t> reversed_results{};
    ValueId source_iteration = kNoValue, source_proceed = kNoValue;
    DimExpr count;
    std::string iteration{};
  };
  struct RepeatResult {
    std::vector<Ref> carried{}, rows{};
  };
  absl::Status ResolveLoop(const Graph& source, const Node& node, Places& places,
                           GraphScope& scope);
  absl::Status ResolveScan(const Graph& source, const Node& node, Places& places,
                           GraphScope& scope);
  absl::StatusOr<bool> FoldRepeat(const Graph& source, const Node& node, Places& places,
                                  GraphScope& scope, int64_t trips);
  absl::StatusOr<std::vector<std::optional<Ref>>> BindCarried(const Graph& source, const Node& node,
                                                              Places& places, Repeat& repeat,
                                                              size_t carried, GraphScope& scope);
  absl::Status CheckLength(const Node& node, Repeat& repeat, GraphScope& scope) const;
  absl::StatusOr<RepeatResult> BuildRepeat(const Node& node, Repeat& repeat, GraphScope& scope);
  // Finds what is carried and grows by a fixed step.
  absl::Status ProbeSteps(Repeat& repeat, GraphScope& scope);
  // The node, without captures and results.
  Node RepeatNode(const Node& node, const Repeat& repeat, GraphScope& scope);
  absl::StatusOr<Value> CarriedResult(const Node& node, const Repeat& repeat,
                                      const Carried& carried, const Ref& next, const DimExpr& trips,
                                      GraphScope& scope);
  // `first_late`: the first symbol that the body sets.
  absl::StatusOr<Value> RowsResult(const Node& node, const Repeat& repeat, const Ref& row,
                                   const DimExpr& trips, size_t first_late) const;
  absl::StatusOr<std::vector<Ref>> BuildRepeatBody(Repeat& repeat, GraphScope& body, bool probe);
  void FindSteps(const Repeat& probe, GraphScope& body, const std::vector<Ref>& outputs,
                 std::vector<Carried>& carried) const;
  // Gives a carried value that no iteration reads, and that at least one replaces, a start of the
  // shape of `result`.
  absl::Status StartUnread(const Repeat& repeat, Carried& carried, const Ref& result,
                           GraphScope& scope);
  // What an iteration makes of a carried value, as the next one takes it.
  absl::StatusOr<Ref> InStartShape(const Carried& carried, Ref result, GraphScope& body);
  absl::Status CheckCarried(const Node& node, const Repeat& repeat, const Carried& carried,
                            const Value& start, const Value& result, GraphScope& scope) const;
  // Whether to go on after an iteration; nullopt: always.
  absl::StatusOr<std::optional<Ref>> Proceed(const Node& node, Repeat& repeat, Ref condition,
                                             GraphScope& body);
  absl::StatusOr<DimExpr> LoopCount(const Graph& source, const Node& node, size_t own,
                                    Places& places, GraphScope& scope);
  ValueId MoveAxis(ValueId id, size_t from, size_t to, GraphScope& scope, absl::Status& status);

  std::string Fresh(absl::string_view what) { return absl::StrCat(what, " #", fresh_++); }

  // `symbol`, which a node of `scope` sets, can be used where `id` can.
  void AddLate(absl::string_view symbol, ValueId id, GraphScope& scope);
  // The same outside of the body that set those from `first` on.
  void PassOut(size_t first, ValueId id, GraphScope& scope);
  // One of the symbols that are set from `first` on.
  bool MentionsLate(const Shape& shape, size_t first) const;

  std::vector<std::string> late_;                // what is set on the way, in order
  absl::flat_hash_map<std::string, Ref> reads_;  // by such a symbol
  int64_t nodes_ = 0;
  int64_t fresh_ = 0;
  int depth_ = 0;
};

}  // namespace stampmill
