// TransformerBuilder: the words in which architectures are written (architectures.h): embeddings,
// norms, projections, attention over the paged cache, feed-forward layers, out of one source, into
// one Graph.
//
// The graph computes one step of several sequences at once, their tokens one after the other:
//
//   inputs   tokens i32 [tokens], positions i32 [tokens], sequences i32 [tokens], tables i32
//            [sequences, blocks] (kernels/paged.cc), outputs i32 [outputs]: the tokens whose
//            results are wanted; then what Sample (kernels/sample.cc) is told of each of these
//   states   "keys.L" and "values.L", f16, of each layer with attention: the cache
//   outputs  Sample's: next_tokens, logprobs, token_ranks, top_tokens, top_logprobs
//
// Of a model that embeds texts it knows nothing of Sample and gives one row for each of `outputs`;
// what becomes of these rows says the output's name: "mean", "first" or "last" for the embedding of
// a text, "each" where a text has none. If tokens see those behind them too, there is one more
// input, lasts i32 [tokens]: the last position of the token's text, all of which is in the step.
//
// The first error is kept; what is built after it is not used. Owned by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/language/rope.h"
#include "compiler/language/source.h"
#include "graph/graph.h"

namespace stampmill {

// What a model is for.
struct ModelTask {
  bool embeds = false;        // else it continues texts
  bool sees_all = false;      // a token sees those behind it too
  absl::string_view pooling;  // if it embeds: the output's name
};

enum class GateActivation : uint8_t { kSilu, kGeluTanh };

struct RotaryOptions {
  int64_t dims = 0;  // elements of a head that are turned
  double base = 10000;
  RopeScaling scaling;
  bool interleaved = false;  // pairs are 2i and 2i + 1, not i and i + dims / 2
};

struct AttentionShape {
  int64_t heads = 0, kv_heads = 0;
  int64_t key_size = 0, value_size = 0;
  double scale = 0;
  double softcap = 0;  // 0: none
  int64_t window = 0;  // tokens that a token sees, itself included; 0: all
};

struct ExpertShape {
  int64_t count = 0, used = 0;
  bool sums_to_one = false;  // the weights of a token's experts are scaled to do so
  double scale = 1;          // of what they give together
};

class TransformerBuilder {
 public:
  // `source` is borrowed.
  TransformerBuilder(const LanguageModelSource& source, const ModelTask& task);

  // Facts. Without a default, a missing one is an error that names it. The layer's own where the
  // fact is a list.
  int64_t Int(absl::string_view fact);
  int64_t Int(absl::string_view fact, int64_t otherwise);
  double Float(absl::string_view fact);
  double Float(absl::string_view fact, double otherwise);
  bool Flag(absl::string_view fact, bool otherwise);
  std::string Text(absl::string_view fact, absl::string_view otherwise);
  bool Has(absl::string_view weight) const;    // "rope_freqs.weight"
  bool HasHere(absl::string_view name) const;  // "attn_qkv", of this layer
  bool embeds() const { return task_.embeds; }
  const LanguageModelSource& source() const { return source_; }

  // Names of weights and lists of facts refer to this layer from now on; -1: to none.
  void EnterLayer(int64_t layer) { layer_ = layer; }
  int64_t layer() const { return layer_; }

  // Values. `name` is "attn_norm" for "blk.LAYER.attn_norm.weight", or of the whole model.
  ValueId EmbedTokens();
  ValueId EmbedPositions();                              // learned ones
  ValueId EmbedTokenType();                              // of the first type, one row
  ValueId RmsNorm(ValueId x, absl::string_view name);    // [tokens, width]
  ValueId LayerNorm(ValueId x, absl::string_view name);  // with a bias
  // The same over each head of `size` of x [tokens, heads * size].
  ValueId RmsNormHeads(ValueId x, absl::string_view name, int64_t heads, int64_t size);
  ValueId Linear(ValueId x, absl::string_view name);  // with its bias, where there is one
  // The same, of whose heads the first `dims` outputs are in another order: pairs 2i and 2i + 1
  // become i and i + dims / 2, which vectors turn without shuffles.
  ValueId LinearByHalves(ValueId x, absl::string_view name, int64_t heads, int64_t dims);
  ValueId Add(ValueId a, ValueId b);
  ValueId Scale(ValueId x, double factor);
  ValueId Softcap(ValueId x, double cap);
  ValueId Gelu(ValueId x);     // by tanh
  ValueId GeluErf(ValueId x);  // as it is defined
  ValueId Gate(ValueId gate, ValueId up, GateActivation activation);
  // Columns [begin, end) of x [tokens, columns].
  ValueId Columns(ValueId x, int64_t begin, int64_t end);
  // Turns the heads of x [tokens, heads * size].
  ValueId Rotate(ValueId x, int64_t heads, const RotaryOptions& rotary);
  // Puts k and v [tokens, kv_heads * size] into the layer's cache and attends to it.
  ValueId Attend(ValueId q, ValueId k, ValueId v, const AttentionShape& shape);
  // Of `count` experts each row goes through the `used` likeliest, `gate` [tokens, count] being
  // what they are weighed by: the sum of gated feed-forwards with weights "ffn_gate_exps",
  // "ffn_up_exps", "ffn_down_exps" of three dims.
  ValueId MixExperts(ValueId x, ValueId gate, const ExpertShape& shape);
  // x [tokens, width] times the sigmoid of gate [tokens, 1].
  ValueId GateBySigmoid(ValueId x, ValueId gate);
  // Only the rows whose results are wanted.
  ValueId SelectOutputs(ValueId x);

  // The numbers of a small weight; empty where there is none.
  std::vector<double> Numbers(absl::string_view weight);

  void Fail(absl::Status status);

  // A weight that this task does not need.
  void Ignore(absl::string_view weight) { used_.insert(std::string(weight)); }

  // The graph, which chooses by `result` [outputs, vocabulary], or gives it, if the model embeds.
  // INVALID_ARGUMENT for a weight that nothing used: the model has a part that its architecture
  // does not.
  absl::StatusOr<Graph> Finish(ValueId result) &&;

 private:
  std::string NameOf(absl::string_view name, absl::string_view part) const;
  const SourceFact* FindFact(absl::string_view fact);
  std::optional<double> Number(absl::string_view fact);
  // The weight as f32 [rows, columns] or [elements].
  ValueId Weight(const std::string& name);
  struct HeadPairs {
    int64_t heads = 0, dims = 0;
  };
  // Brings rows (or elements) of heads from pairs into halves.
  absl::Status ReorderRows(const HeadPairs& pairs, SourceWeight& weight);
  ValueId ExpertLinear(ValueId x, absl::string_view name, ValueId pairs, ValueId counts,
                       const ExpertShape& shape);
  ValueId Op(absl::string_view type, std::vector<ValueId> inputs,
             absl::flat_hash_map<std::string, Attribute> attributes = {});
  ValueId Constant(Tensor tensor, absl::string_view name);
  ValueId Ints(std::vector<int64_t> values);
  ValueId Reshape(ValueId x, std::vector<int64_t> shape);
  // [1, tokens, pairs]
  struct Angles {
    ValueId cos, sin;
  };
  Angles AnglesOf(const RotaryOptions& rotary);

  absl::Status CheckAllUsed() const;
  void AddSamplingInputs();

  const LanguageModelSource& source_;
  const ModelTask task_;
  Graph graph_;
  absl::Status status_;
  int64_t layer_ = -1;
  ValueId tokens_, positions_, sequences_, tables_, outputs_, lasts_;
  std::vector<ValueId> sampling_;  // what Sample is told
  absl::flat_hash_map<std::string, ValueId> weights_;
  absl::flat_hash_map<std::string, HeadPairs> by_halves_;  // weights
  absl::flat_hash_set<std::string> used_;
  std::vector<std::pair<std::string, Angles>> angles_;
};

}  // namespace stampmill
