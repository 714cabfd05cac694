// Other engines on a model and its inputs, for `bench model`: each measurement is a process of its
// own, under a Python that the user names and that has the engines' packages.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/cli/timing.h"

namespace stampmill {

// Names that MeasurePeer knows.
std::span<const char* const> PeerEngines();

struct PeerRequest {
  std::string python;  // path or name of the interpreter
  std::string engine;
  std::string model;                                       // ONNX file
  std::vector<std::pair<std::string, std::string>> files;  // input name, .npy file
  int threads = 1;
  int warmup = 0;
  int repeat = 1;
};

struct PeerMeasurement {
  std::string version;
  double open_seconds = 0;  // making a session of the file
  Latency latency;
};

// NOT_FOUND when the interpreter cannot be started; FAILED_PRECONDITION with the engine's words
// when it is not installed or cannot run the model. Blocks until the process has ended.
absl::StatusOr<PeerMeasurement> MeasurePeer(const PeerRequest& request);

}  // namespace stampmill
