#include "server/cli/bench_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace stampmill {
namespace {

using testing::HasSubstr;

// A program in the place of Python that prints what it is told to.
std::string Interpreter(const std::string& name, const std::string& output) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << "#!/bin/sh\ncat << 'END'\n" << output << "\nEND\n";
  chmod(path.c_str(), 0700);
  return path;
}

absl::StatusOr<PeerMeasurement> Measure(const std::string& python) {
  return MeasurePeer({.python = python, .engine = "onnxruntime", .model = "m.onnx"});
}

TEST(BenchPeersTest, TheLastLineIsTheResult) {
  const auto measured = Measure(Interpreter("good",
                                            "a warning\n{\"version\": \"1.2\", \"open_seconds\": "
                                            "0.5, \"nanos\": [3000, 1000, 2000, 4000]}"));
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->version, "1.2");
  EXPECT_EQ(measured->open_seconds, 0.5);
  EXPECT_EQ(measured->latency.runs, 4);
  EXPECT_EQ(measured->latency.p25_us, 1);
  EXPECT_EQ(measured->latency.mean_us, 2.5);
}

TEST(BenchPeersTest, AnEnginesErrorIsHandedOn) {
  const auto measured = Measure(Interpreter(
      "failing", "{\"error\": \"ModuleNotFoundError: No module named 'onnxruntime'\"}"));
  EXPECT_EQ(measured.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(measured.status().message(), HasSubstr("No module named 'onnxruntime'"));
}

TEST(BenchPeersTest, OutputThatIsNoResultIsAnError) {
  for (const char* output : {"", "Killed", "[1]", "{}", "{\"version\": 1}",
                             "{\"version\": \"1\", \"open_seconds\": 1.0, \"nanos\": [\"x\"]}"}) {
    EXPECT_EQ(Measure(Interpreter("odd", output)).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << output;
  }
}

TEST(BenchPeersTest, AnInterpreterThatIsNotThereIsNamed) {
  const auto measured = Measure("/nowhere/python3");
  EXPECT_EQ(measured.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(measured.status().message(), HasSubstr("/nowhere/python3"));
}

}  // namespace
}  // namespace stampmill
