// Feeds a fuzz target the files of its corpus: the part of fuzzing that every test run does.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

TEST(FuzzCorpus, IsAcceptedOrRefusedWithoutHarm) {
  LLVMFuzzerTestOneInput(nullptr, 0);
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           FUZZ_CORPUS, std::filesystem::directory_options::follow_directory_symlink)) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++files;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
