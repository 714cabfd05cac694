// `stampmill inspect`: what a model is: inputs, outputs, operators, parameters, memory, and whether
// it can be compiled, without compiling it.
#include <boost/json.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/placement.h"
#include "runtime/reference_model.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/table.h"

namespace stampmill {
namespace {

boost::json::array TensorsJson(const std::vector<InspectedTensor>& tensors) {
  boost::json::array array;
  for (const InspectedTensor& tensor : tensors) {
    array.push_back({{"name", tensor.name},
                     {"dtype", tensor.dtype},
                     {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())}});
  }
  return array;
}

boost::json::value Json(const ModelInspection& model, const std::string& target,
                        const std::string& options) {
  boost::json::array operators;
  for (const InspectedOperator& op : model.operators) {
    operators.push_back(
        {{"domain", op.domain},
         {"op_type", op.op_type},
         {"count", op.count},
         {"devices", op.supported ? boost::json::array{"cpu"} : boost::json::array{}},
         {"reason", op.reason}});
  }
  boost::json::object opsets;
  for (const auto& [domain, version] : model.opsets) opsets[domain] = version;
  return {{"name", model.name},
          {"producer", model.producer},
          {"ir_version", model.ir_version},
          {"opsets", opsets},
          {"inputs", TensorsJson(model.inputs)},
          {"outputs", TensorsJson(model.outputs)},
          {"operators", operators},
          {"parameters", model.parameters},
          {"parameter_bytes", model.parameter_bytes},
          {"external_files",
           boost::json::array(model.external_files.begin(), model.external_files.end())},
          {"target", target},
          {"options", options},
          {"problem", model.problem},
          {"kernels", model.kernels},
          {"launches", model.launches},
          {"weight_bytes", model.weight_bytes},
          {"workspace_bytes", model.workspace_bytes},
          {"batch_dim", model.batch_symbol},
          {"not_batchable", model.batch_reason}};
}

void PrintTensors(const char* head, const std::vector<InspectedTensor>& tensors) {
  for (const InspectedTensor& tensor : tensors) {
    printf("%s %s: %s [%s]\n", head, tensor.name.c_str(), tensor.dtype.c_str(),
           absl::StrJoin(tensor.shape, ", ").c_str());
  }
}

void Print(const ModelInspection& model, const std::string& target) {
  std::vector<std::string> opsets;
  for (const auto& [domain, version] : model.opsets) {
    opsets.push_back(absl::StrCat(domain.empty() ? "ai.onnx" : domain, " ", version));
  }
  // Files of other formats than ONNX have a name alone.
  std::string heading =
      model.name.empty() ? "model without a name" : absl::StrCat("model ", model.name);
  if (!model.producer.empty()) absl::StrAppend(&heading, " by ", model.producer);
  if (model.ir_version > 0) absl::StrAppend(&heading, ", IR version ", model.ir_version);
  if (!opsets.empty()) absl::StrAppend(&heading, ", ", absl::StrJoin(opsets, ", "));
  printf("%s\n", heading.c_str());
  PrintTensors("input", model.inputs);
  PrintTensors("output", model.outputs);
  printf("parameters: %ld (%s)\n", model.parameters, SizeText(model.parameter_bytes).c_str());
  Table table({"operator", "count", "cpu"});
  for (const InspectedOperator& op : model.operators) {
    const std::string name = op.domain.empty() ? op.op_type : op.domain + "." + op.op_type;
    table.Add({name, op.count, op.supported ? "yes" : op.reason});
  }
  fputs(table.Text().c_str(), stdout);
  if (!model.problem.empty()) {
    printf("cannot be compiled for %s: %s\n", target.c_str(), model.problem.c_str());
    return;
  }
  printf("for %s: %ld kernels, %ld launches, %s of weights, ", target.c_str(), model.kernels,
         model.launches, SizeText(model.weight_bytes).c_str());
  if (model.workspace_bytes < 0) {
    printf("a workspace that depends on the request\n");
  } else {
    printf("%s of workspace for open dims of 1\n",
           SizeText(static_cast<uint64_t>(model.workspace_bytes)).c_str());
  }
  printf("batching: %s\n", model.batch_symbol.empty()
                               ? absl::StrCat("no: ", model.batch_reason).c_str()
                               : "along dim 0");
}

}  // namespace

int RunInspect(int argc, char** argv) {
  std::string path;
  DeviceFlags flags;
  CompileFlags compile;
  bool json = false;
  CommandLine line("inspect", "describes a model without compiling it");
  line.app().add_option("MODEL", path, "the model file")->required();
  line.app().add_option("--cpu-isa", flags.cpu_isa, "class of CPU code (default: the host's)");
  AddActivationPrecision(line.app(), compile.activation_precision);
  line.app().add_flag("--json", json, "print JSON");
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  const absl::StatusOr<std::string> target = TargetText(flags);
  if (!target.ok()) return Fail(FromFlags(target.status()));
  const absl::StatusOr<std::string> options = CompileOptionsText(compile);
  if (!options.ok()) return Fail(FromFlags(options.status()));
  const absl::StatusOr<ModelInspection> model = InspectModel(path, *target, *options);
  if (!model.ok()) return Fail(model.status());
  if (json) {
    PrintJson(Json(*model, *target, *options));
  } else {
    Print(*model, options->empty() ? *target : absl::StrCat(*target, ", ", *options));
  }
  return kExitDone;
}

}  // namespace stampmill
