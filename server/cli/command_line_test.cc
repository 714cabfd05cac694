#include "server/cli/command_line.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  std::optional<int> exit;
  int threads = 1;
  bool verify = false;
  std::vector<std::string> inputs, files;
  std::string output, error;
};

Parsed Parse(std::vector<std::string> arguments, bool takes_files = false) {
  Parsed parsed;
  CommandLine line("thing", "does the thing");
  line.app().add_option("--threads,--number", parsed.threads, "threads")->check(CLI::Range(1, 9));
  line.app().add_flag("--verify", parsed.verify, "verify");
  line.app()
      .add_option("--input", parsed.inputs, "inputs")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (takes_files) line.app().add_option("FILE", parsed.files, "files");
  arguments.insert(arguments.begin(), "thing");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  parsed.exit = line.Parse(static_cast<int>(pointers.size()), pointers.data());
  parsed.output = ::testing::internal::GetCapturedStdout();
  parsed.error = ::testing::internal::GetCapturedStderr();
  return parsed;
}

std::string Config(absl::string_view text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/flags.yaml");
  EXPECT_TRUE(AtomicReplaceFile(path, AsBytes(text)).ok());
  return absl::StrCat("--config=", path);
}

TEST(CommandLineTest, FlagsAreRead) {
  const Parsed parsed = Parse({"--threads=3", "--verify", "--input", "a", "--input=b"});
  EXPECT_FALSE(parsed.exit.has_value());
  EXPECT_EQ(parsed.threads, 3);
  EXPECT_TRUE(parsed.verify);
  EXPECT_THAT(parsed.inputs, ElementsAre("a", "b"));
}

TEST(CommandLineTest, HelpIsPrintedAndDone) {
  const Parsed parsed = Parse({"--help"});
  EXPECT_EQ(parsed.exit, kExitDone);
  EXPECT_THAT(parsed.output, HasSubstr("--threads"));
  EXPECT_THAT(parsed.output, HasSubstr("does the thing"));
}

TEST(CommandLineTest, AFlagThatMayBeRepeatedLeavesWhatFollowsItsValue) {
  const Parsed parsed =
      Parse({"--input", "a", "--input", "b", "one.onnx", "two.onnx"}, /*takes_files=*/true);
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_THAT(parsed.inputs, ElementsAre("a", "b"));
  EXPECT_THAT(parsed.files, ElementsAre("one.onnx", "two.onnx"));
}

TEST(CommandLineTest, AWrongLineIsOneLineOfError) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--no-such-flag"}, std::vector<std::string>{"--threads=x"},
        std::vector<std::string>{"--threads=10"}, std::vector<std::string>{"stray"}}) {
    const Parsed parsed = Parse(wrong);
    EXPECT_EQ(parsed.exit, kExitUsage) << wrong[0];
    EXPECT_THAT(parsed.error, ::testing::StartsWith("stampmill: thing: "));
    EXPECT_EQ(parsed.error.find('\n'), parsed.error.size() - 1);
  }
}

TEST(CommandLineTest, AFlagWithoutAValueDoesNotTakeTheNextFlag) {
  const Parsed parsed = Parse({"--input=", "--threads=4"});
  EXPECT_EQ(parsed.exit, kExitUsage);
  EXPECT_EQ(parsed.error, "stampmill: thing: --input: got no value after its '='\n");
}

TEST(CommandLineTest, AConfigFileGivesFlagsAndTheLineWins) {
  const std::string config = Config("threads: 5\nverify: true\ninput: [a, b]\n");
  Parsed parsed = Parse({config});
  EXPECT_FALSE(parsed.exit.has_value()) << parsed.error;
  EXPECT_EQ(parsed.threads, 5);
  EXPECT_TRUE(parsed.verify);
  EXPECT_THAT(parsed.inputs, ElementsAre("a", "b"));
  parsed = Parse({config, "--threads", "7", "--input=c"});
  EXPECT_EQ(parsed.threads, 7);
  EXPECT_THAT(parsed.inputs, ElementsAre("c"));
}

TEST(CommandLineTest, AWrongConfigFileIsAUsageError) {
  EXPECT_EQ(Parse({"--config=/no/such/file"}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("unknown-flag: 5\n")}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("threads: {a: b}\n")}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("- threads\n")}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("threads: [\n")}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("config: other.yaml\n")}).exit, kExitUsage);
  EXPECT_EQ(Parse({Config("[threads]: 5\n")}).exit, kExitUsage);
  EXPECT_FALSE(Parse({Config("")}).exit.has_value());
}

TEST(CommandLineTest, AConfigFileGivesEachFlagOnceAndListsWhereTheyBelong) {
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"threads: [1, 2]\n", "threads: got a list, want one value"},
           {"threads: [1]\n", "threads: got a list, want one value"},
           {"threads:\n", "threads: got nothing"},
           {"threads: 1\nverify: true\nthreads: 2\n", "threads: got it twice"},
           {"number: 1\nthreads: 2\n", "threads: got it twice"},
           {"input: [a, [b]]\n", "input: its list has what is no value"},
           {"input: {a: b}\n", "input: got a map"},
           {"input: a\ninput: b\n", "input: got it twice"},
           {"unknown-flag: 5\n", "'unknown-flag'"}}) {
    const Parsed parsed = Parse({Config(text)});
    EXPECT_EQ(parsed.exit, kExitUsage) << text;
    EXPECT_THAT(parsed.error, HasSubstr(words)) << text;
  }
  // The line wins over any of a flag's names.
  const Parsed parsed = Parse({Config("threads: 5\ninput: [a]\n"), "--number=3", "--input=b"});
  EXPECT_EQ(parsed.threads, 3);
  EXPECT_THAT(parsed.inputs, ElementsAre("b"));
}

TEST(CommandLineTest, SizesAreNumbersOfBytes) {
  EXPECT_EQ(*ParseSize("--size", "4096"), 4096u);
  EXPECT_EQ(*ParseSize("--size", "64MiB"), uint64_t{64} << 20);
  for (const char* wrong : {"", "-1", "0", "4x", "MiB", "50%", "99999999999999999999"}) {
    const absl::Status status = ParseSize("--size", wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--size: got '"));
  }
}

TEST(CommandLineTest, TheExitStatusTellsTheLinesFaultFromTheWorks) {
  const auto exit = [](const absl::Status& status) {
    ::testing::internal::CaptureStderr();
    const int code = Fail(status);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "stampmill: what\n");
    return code;
  };
  EXPECT_EQ(exit(absl::InvalidArgumentError("what")), kExitFailed);
  EXPECT_EQ(exit(FromFlags(absl::InvalidArgumentError("what"))), kExitUsage);
  EXPECT_EQ(exit(FromFlags(absl::NotFoundError("what"))), kExitFailed);
  EXPECT_EQ(exit(FromFlags(absl::StatusOr<int>(absl::InvalidArgumentError("what"))).status()),
            kExitUsage);
  EXPECT_EQ(*FromFlags(absl::StatusOr<int>(5)), 5);
}

}  // namespace
}  // namespace stampmill
