// The small texts of the kernel cache: what a model was compiled from and into. Each is lines of
// `word value`, ends in `sum <SHA-256 of all before this line>`, and is refused (DATA_LOSS) when
// the sum, a line or an order is wrong. Values may not hold control characters.
//
//   stampmill model 1                      stampmill files 1        stampmill kernel 1
//   name magika                            model <sha256>           key <sha256>
//   target cpu:x86-64-v3                   file weights.bin         artifact <sha256>
//   options activation-precision=f32       sum <sha256>             entry k_4f2a
//   abi <sha256>                                                    sum <sha256>
//   source <sha256> magika.onnx
//   source <sha256> weights.bin
//   program <sha256>
//   object <sha256>                        (artifacts and packed weights)
//   compile_ms 4310
//   sum <sha256>
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace stampmill {

// What a model is compiled from. `options` is text in canonical form: equal options, equal text.
struct ModelSource {
  std::string path;     // the model file
  std::string target;   // a target's text (devices/target.h)
  std::string options;  // empty: the defaults
  Digest compiler_abi;  // CompilerAbi() of compiler/compiler_abi.h
};

// SHA-256 over the digests of the model file and its external data, in the order of
// ModelRecord::sources, then target, options and compiler ABI.
using ModelKey = Digest;

struct ModelRecord {
  struct Source {
    std::string path;  // the model file's name; external data: relative to the model file's folder
    Digest digest;
  };
  std::string name;
  std::string target;
  std::string options;
  Digest compiler_abi;
  std::vector<Source> sources;  // the model file first; paths are no part of the key
  Digest program;
  std::vector<Digest> objects;  // what the program names: artifacts, packed weights
  int64_t compile_milliseconds = 0;

  ModelKey Key() const;
  std::string Serialize() const;
  static absl::StatusOr<ModelRecord> Parse(absl::string_view text);
};

// The external data files of one model file, by its digest: what a warm start must digest to find
// the key, without reading the model.
struct ModelFilesRecord {
  Digest model;
  std::vector<std::string> paths;

  std::string Serialize() const;
  static absl::StatusOr<ModelFilesRecord> Parse(absl::string_view text);
};

struct KernelRecord {
  Digest artifact;
  std::string entry;

  std::string Serialize(const Digest& key) const;
  // DATA_LOSS also when the text is another key's.
  static absl::StatusOr<KernelRecord> Parse(absl::string_view text, const Digest& key);
};

}  // namespace stampmill
