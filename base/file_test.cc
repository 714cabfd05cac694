#include "base/file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

using testing::HasSubstr;

// A fresh directory for each test.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    directory_ = absl::StrCat(testing::TempDir(), "/file_test_XXXXXX");
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }
  std::string Write(absl::string_view name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }

  std::string directory_;
};

TEST_F(FileTest, DescriptorClosesOnceAndMoves) {
  absl::StatusOr<FileDescriptor> fd = OpenFile(Write("a", "x"), O_RDONLY);
  ASSERT_TRUE(fd.ok());
  const int number = fd->get();
  FileDescriptor other = *std::move(fd);
  EXPECT_EQ(other.get(), number);
  EXPECT_FALSE(fd->valid());
  EXPECT_EQ(fcntl(number, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  other = FileDescriptor();
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

TEST_F(FileTest, ErrorsNameThePathAndTheReason) {
  const absl::Status status = OpenFile(Path("missing"), O_RDONLY).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("missing")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file"));
  EXPECT_EQ(ReadFile(Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Mapping::File(Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(Mapping::File(directory_).ok());
}

TEST_F(FileTest, ReadsFilesOfAnySize) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, 300'000}) {
    std::string text(size, 'a');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    const absl::StatusOr<std::string> read = ReadFile(Write("f", text));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

TEST_F(FileTest, ReadsFilesThatClaimNoSize) {
  const absl::StatusOr<std::string> text = ReadFile("/proc/self/maps");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GT(text->size(), 1000u);
}

TEST_F(FileTest, ReadStopsAtTheLimit) {
  const std::string path = Write("f", std::string(100, 'x'));
  EXPECT_TRUE(ReadFile(path, 100).ok());
  EXPECT_EQ(ReadFile(path, 99).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadFile("/dev/zero", 1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FileTest, MapsARangeThatStartsAnywhere) {
  std::string text(20'000, 0);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
  absl::StatusOr<FileDescriptor> fd = OpenFile(Write("f", text), O_RDONLY);
  ASSERT_TRUE(fd.ok());
  for (const uint64_t offset : {0, 1, 4096, 5000}) {
    const absl::StatusOr<Mapping> mapping = Mapping::Map(*fd, offset, 9000, Mapping::Access::kRead);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    EXPECT_EQ(AsText(mapping->bytes()), absl::string_view(text).substr(offset, 9000));
  }
}

TEST_F(FileTest, RefusesToMapBeyondTheEnd) {
  absl::StatusOr<FileDescriptor> fd = OpenFile(Write("f", "0123456789"), O_RDONLY);
  ASSERT_TRUE(fd.ok());
  const auto code = [&](uint64_t offset, uint64_t size) {
    return Mapping::Map(*fd, offset, size, Mapping::Access::kRead).status().code();
  };
  EXPECT_EQ(code(0, 10), absl::StatusCode::kOk);
  EXPECT_EQ(code(10, 0), absl::StatusCode::kOk);
  EXPECT_EQ(code(0, 11), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(11, 0), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(5, ~uint64_t{0}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(~uint64_t{0}, 5), absl::StatusCode::kOutOfRange);
}

TEST_F(FileTest, MapsAnEmptyFile) {
  const absl::StatusOr<Mapping> mapping = Mapping::File(Write("empty", ""));
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_TRUE(mapping->bytes().empty());
}

TEST_F(FileTest, SharesAWritableMapping) {
  absl::StatusOr<FileDescriptor> fd = CreateMemfd("pool", 8192);
  ASSERT_TRUE(fd.ok()) << fd.status();
  absl::StatusOr<Mapping> one = Mapping::Map(*fd, 100, 50, Mapping::Access::kReadWrite);
  absl::StatusOr<Mapping> two = Mapping::Map(*fd, 0, 8192, Mapping::Access::kRead);
  ASSERT_TRUE(one.ok() && two.ok());
  one->mutable_bytes()[7] = std::byte{42};
  EXPECT_EQ(two->bytes()[107], std::byte{42});
  fd->Close();
  Mapping moved = *std::move(one);
  EXPECT_TRUE(one->bytes().empty());
  EXPECT_EQ(moved.bytes()[7], std::byte{42});
}

TEST_F(FileTest, ReplacesAFileAtomically) {
  const std::string path = Write("f", "old");
  ASSERT_TRUE(AtomicReplaceFile(path, AsBytes("new content"), 0600).ok());
  EXPECT_EQ(*ReadFile(path), "new content");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(FileTest, LeavesNothingBehindWhenReplacingFails) {
  ASSERT_TRUE(MakeDirectories(Path("target/child")).ok());
  EXPECT_FALSE(AtomicReplaceFile(Path("target"), AsBytes("x")).ok());
  EXPECT_FALSE(AtomicReplaceFile(Path("missing/f"), AsBytes("x")).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(FileTest, ReplacesWhatALinkLeadsToAndNotTheLink) {
  const std::string path = Write("f", "old");
  ASSERT_TRUE(MakeDirectories(Path("links")).ok());
  std::filesystem::create_symlink("../f", Path("links/near"));
  std::filesystem::create_symlink("near", Path("links/far"));
  ASSERT_TRUE(AtomicReplaceFile(Path("links/far"), AsBytes("new")).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("links/far")));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("links/near")));
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  EXPECT_EQ(*ReadFile(path), "new");
  std::filesystem::create_symlink("nowhere", Path("links/broken"));
  std::filesystem::create_symlink("loop", Path("links/loop"));
  for (const char* name : {"links/broken", "links/loop"}) {
    const absl::Status status = AtomicReplaceFile(Path(name), AsBytes("new"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(name)));
    EXPECT_TRUE(std::filesystem::is_symlink(Path(name)));
  }
}

TEST_F(FileTest, WritesIntoAPipeAndLeavesItAPipe) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", Path("link"));
  // A reader that is there first, so that nothing waits.
  const FileDescriptor reader = *OpenFile(path, O_RDONLY | O_NONBLOCK);
  for (const std::string& name : {path, Path("link")}) {
    ASSERT_TRUE(AtomicReplaceFile(name, AsBytes("text")).ok());
    char text[8];
    EXPECT_EQ(read(reader.get(), text, sizeof(text)), 4);
    EXPECT_EQ(std::string(text, 4), "text");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
}

TEST_F(FileTest, ReplacesNeitherDirectoriesNorSockets) {
  const std::string path = Path("socket");
  const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  // The folder by its descriptor: whole, the path may be too long for an address.
  const FileDescriptor folder = *OpenFile(directory_, O_PATH | O_DIRECTORY);
  snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", folder.get());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const std::string& name : {path, directory_}) {
    const absl::Status status = AtomicReplaceFile(name, AsBytes("x"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  EXPECT_TRUE(std::filesystem::is_socket(path));
}

TEST_F(FileTest, AReplacementThatIsNotCommittedLeavesNothing) {
  const std::string path = Write("f", "old");
  {
    auto replacement = FileReplacement::Begin(path);
    ASSERT_TRUE(replacement.ok()) << replacement.status();
    ASSERT_TRUE(WriteAll(replacement->file(), AsBytes("half"), path).ok());
  }
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(FileTest, MakesMissingDirectories) {
  EXPECT_TRUE(MakeDirectories(Path("a/b/c"), 0700).ok());
  EXPECT_TRUE(MakeDirectories(Path("a/b/c/")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(Path("a/b/c")));
  struct stat info;
  ASSERT_EQ(stat(Path("a/b/c").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
  Write("plain", "x");
  const absl::Status status = MakeDirectories(Path("plain/sub"));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("plain")));
}

}  // namespace
}  // namespace stampmill
