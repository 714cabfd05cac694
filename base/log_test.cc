#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    SetLogFormat(LogFormat::kPlain);
    SetLogThreshold(LogSeverity::kINFO);
  }

  template <typename F>
  std::string Captured(F&& f) {
    testing::internal::CaptureStderr();
    f();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesOneLineWithTimeSeverityAndPlace) {
  const std::string text = Captured([] { LOG(WARNING) << "disk " << 93 << " % full"; });
  EXPECT_THAT(text,
              testing::MatchesRegex("20..-..-..T..:..:..\\.......Z WARNING log_test.cc:[0-9]+ "
                                    "\\[[0-9]+\\] disk 93 % full\n"));
}

TEST_F(LogTest, LeavesOutWhatIsBelowTheThreshold) {
  SetLogThreshold(LogSeverity::kERROR);
  int evaluated = 0;
  const std::string text = Captured([&] {
    LOG(INFO) << ++evaluated;
    LOG(WARNING) << ++evaluated;
    LOG(ERROR) << "kept";
  });
  EXPECT_EQ(evaluated, 0);
  EXPECT_THAT(text, testing::HasSubstr("ERROR"));
  EXPECT_THAT(text, testing::EndsWith("kept\n"));
}

TEST_F(LogTest, WritesJsonLines) {
  SetLogFormat(LogFormat::kJson);
  const std::string text = Captured([] { LOG(INFO) << "a \"quoted\" \\ \n\x01 word"; });
  EXPECT_THAT(text, testing::StartsWith("{\"time\":\"20"));
  EXPECT_THAT(text, testing::HasSubstr("\"severity\":\"INFO\",\"file\":\"log_test.cc\",\"line\":"));
  EXPECT_THAT(text, testing::EndsWith("\"message\":\"a \\\"quoted\\\" \\\\ \\n\\u0001 word\"}\n"));
}

TEST_F(LogTest, JsonLinesAreAlwaysUtf8) {
  SetLogFormat(LogFormat::kJson);
  const std::string text = Captured([] { LOG(INFO) << "caf\xc3\xa9 \xff\xe2\x82"; });
  EXPECT_THAT(text, testing::EndsWith("\"message\":\"caf\xc3\xa9 \\ufffd\\ufffd\\ufffd\"}\n"));
}

TEST_F(LogTest, CannotBeMadeToForgeALine) {
  const std::string text =
      Captured([] { LOG(INFO) << "name\n2030-01-01T00:00:00Z ERROR forged\x1b[31m"; });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, testing::HasSubstr("name\\n2030"));
  EXPECT_THAT(text, testing::HasSubstr("\\x1b[31m"));
}

TEST_F(LogTest, CutsALongMessageAndSaysSo) {
  const std::string text = Captured([] { LOG(INFO) << std::string(100'000, 'x'); });
  EXPECT_LE(text.size(), size_t{PIPE_BUF});
  EXPECT_THAT(text, testing::EndsWith("xxx...\n"));
}

TEST_F(LogTest, CutsAnEscapedMessageBetweenEscapes) {
  SetLogFormat(LogFormat::kJson);
  const std::string text = Captured([] { LOG(INFO) << std::string(3000, '\x01'); });
  EXPECT_LE(text.size(), size_t{PIPE_BUF});
  EXPECT_THAT(text, testing::EndsWith("\\u0001...\"}\n"));
}

TEST_F(LogTest, KeepsLinesOfThreadsApart) {
  const std::string text = Captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) LOG(INFO) << std::string(200, 'y');
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, testing::EndsWith("] " + std::string(200, 'y')));
  }
}

// Standard error becomes a pipe that is full.
TEST_F(LogTest, DoesNotWaitForAReaderThatHasStopped) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int old = dup(STDERR_FILENO);
  ASSERT_GE(dup2(ends[1], STDERR_FILENO), 0);
  const std::string line(1000, 'x');
  // More than any pipe holds by default.
  for (int i = 0; i < 200; ++i) LOG(INFO) << line;
  std::string text(1 << 20, '\0');
  ASSERT_GT(read(ends[0], text.data(), text.size()), 0);
  LOG(INFO) << "there is room again";
  const ssize_t size = read(ends[0], text.data(), text.size());
  dup2(old, STDERR_FILENO);
  for (const int fd : {old, ends[0], ends[1]}) close(fd);
  ASSERT_GT(size, 0);
  EXPECT_THAT(text.substr(0, static_cast<size_t>(size)), testing::EndsWith("room again\n"));
}

}  // namespace
}  // namespace stampmill
