#include "server/cli/model_inputs.h"

#include <map>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/cli/command_line.h"
#include "server/cli/npy.h"

namespace stampmill {
namespace {

// "NAME=VALUE"; names may hold '=' but values do not.
absl::StatusOr<std::map<std::string, std::string>> ByName(absl::string_view flag,
                                                          const std::vector<std::string>& pairs) {
  std::map<std::string, std::string> values;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": got '", pair, "', limit NAME=VALUE"));
    }
    if (!values.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": got '", pair.substr(0, equals), "' twice"));
    }
  }
  return values;
}

absl::Status CheckNames(absl::string_view flag, const std::map<std::string, std::string>& values,
                        const Model& model) {
  for (const auto& [name, value] : values) {
    if (model.FindInput(name) >= 0) continue;
    std::vector<std::string> known;
    for (const ModelTensor& input : model.inputs()) known.push_back(input.name);
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": got '", name, "', the model's inputs are ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> FileInput(const ModelTensor& input, const std::string& path) {
  ASSIGN_OR_RETURN(Tensor tensor, ReadNpy(path));
  if (tensor.dtype() == input.dtype) return tensor;
  if (input.dtype == DType::kBF16 && tensor.dtype() == DType::kU16) {
    return Tensor::View(DType::kBF16, tensor.shape(), tensor.bytes(),
                        std::make_shared<Tensor>(tensor));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "input '", input.name, "': dtype: got ", Name(tensor.dtype()), ", want ", Name(input.dtype)));
}

absl::StatusOr<std::vector<int64_t>> RandomShape(const ModelTensor& input,
                                                 const std::string* wanted) {
  std::vector<int64_t> shape = input.dims;
  std::vector<int64_t> chosen;
  if (wanted != nullptr) {
    ASSIGN_OR_RETURN(chosen, ParseShape(*wanted));
    if (chosen.size() != shape.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shape: input '", input.name, "': rank: got ", chosen.size(), ", want ", shape.size()));
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0 || shape[i] == chosen[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat("--shape: input '", input.name, "': dim ", i,
                                                     ": got ", chosen[i], ", want ", shape[i]));
    }
    return chosen;
  }
  for (int64_t& dim : shape) {
    if (dim < 0) dim = 1;
  }
  return shape;
}

}  // namespace

void AddInputFlags(CLI::App& app, InputFlags& flags) {
  app.add_option("--input", flags.inputs, "NAME=FILE.npy; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--random-inputs", flags.random, "random values for inputs without a file");
  app.add_option("--shape", flags.shapes,
                 "shape of a random input, NAME=1x3x224x224; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--seed", flags.seed, "of random inputs")->capture_default_str();
  app.add_option("--random-int-max", flags.random_int_max, "largest random integer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
}

absl::StatusOr<std::vector<int64_t>> ParseShape(absl::string_view text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(text, absl::ByAnyChar("x,"))) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got '", text, "', limit such as 1x3x224x224"));
    }
    shape.push_back(dim);
  }
  return shape;
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrJoin(shape, "x"); }

absl::StatusOr<Tensor> RandomTensor(DType dtype, const std::vector<int64_t>& shape, uint64_t seed,
                                    int64_t int_max) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, shape));
  std::mt19937_64 random(seed);
  for (int64_t i = 0, n = tensor.element_count(); i < n; ++i) {
    const uint64_t bits = random();
    if (IsFloat(dtype)) {
      tensor.SetFromDouble(i, static_cast<double>(bits >> 11) * 0x1p-52 - 1);
    } else {
      const uint64_t range = dtype == DType::kBool ? 2 : static_cast<uint64_t>(int_max) + 1;
      tensor.SetFromInt64(i, static_cast<int64_t>(bits % range));
    }
  }
  return tensor;
}

absl::StatusOr<std::vector<Tensor>> MakeInputs(const InputFlags& flags, const Model& model) {
  ASSIGN_OR_RETURN(const auto files, FromFlags(ByName("--input", flags.inputs)));
  ASSIGN_OR_RETURN(const auto shapes, FromFlags(ByName("--shape", flags.shapes)));
  RETURN_IF_ERROR(FromFlags(CheckNames("--input", files, model)));
  RETURN_IF_ERROR(FromFlags(CheckNames("--shape", shapes, model)));
  std::vector<Tensor> tensors;
  for (const ModelTensor& input : model.inputs()) {
    const auto file = files.find(input.name);
    if (file != files.end()) {
      ASSIGN_OR_RETURN(Tensor tensor, FileInput(input, file->second));
      tensors.push_back(std::move(tensor));
      continue;
    }
    if (!flags.random) {
      return FromFlags(absl::InvalidArgumentError(absl::StrCat(
          "input '", input.name, "': got no --input, and --random-inputs is not set")));
    }
    const auto wanted = shapes.find(input.name);
    ASSIGN_OR_RETURN(
        const std::vector<int64_t> shape,
        FromFlags(RandomShape(input, wanted == shapes.end() ? nullptr : &wanted->second)));
    if (wanted == shapes.end() && shape != input.dims) {
      LOG(INFO) << "input '" << input.name << "': random values of shape " << ShapeText(shape)
                << "; --shape " << input.name << "=... chooses another";
    }
    // Its name in the seed: inputs of one shape differ.
    const uint64_t seed = flags.seed ^ Xxh3(AsBytes(input.name));
    ASSIGN_OR_RETURN(Tensor tensor, RandomTensor(input.dtype, shape, seed, flags.random_int_max));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace stampmill
