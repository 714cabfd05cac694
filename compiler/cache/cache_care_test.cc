#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "compiler/cache/kernel_cache.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CacheCareTest : public ::testing::Test {
 protected:
  CacheCareTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/care_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    cache_ = Open("cache");
    shared_ = *cache_->Put(AsBytes("shared code"));
  }
  ~CacheCareTest() override { fs::remove_all(root_); }

  std::unique_ptr<KernelCache> Open(const char* name) {
    auto cache = KernelCache::Open({.directory = (root_ / name).string()});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  ModelSource Source(const std::string& name) {
    const fs::path path = root_ / (name + ".onnx");
    if (!fs::exists(path)) std::ofstream(path) << name;
    return {.path = path.string(), .target = "cpu:x86-64"};
  }
  // A model of a program, the shared artifact and as many bytes of weights, last used so long ago.
  ModelRecord Add(const std::string& name, int64_t seconds_ago, size_t weights_size = 100000) {
    const ModelSource source = Source(name);
    ModelRecord record{.name = name, .target = source.target};
    record.sources.push_back({name + ".onnx", *cache_->FileDigest(source.path)});
    record.program = *cache_->Put(AsBytes(absl::StrCat("program ", name)));
    const std::string weights = absl::StrCat(name, std::string(weights_size, 'w'));
    const std::span<const std::byte> part = AsBytes(weights);
    record.objects = {shared_, *cache_->PutWeights({&part, 1})};
    EXPECT_TRUE(cache_->PutModel(record).ok());
    EXPECT_TRUE(cache_->PutKernel(Sha256(AsBytes(name)), {.artifact = record.program}).ok());
    const timespec when = {.tv_sec = time(nullptr) - seconds_ago, .tv_nsec = 0};
    const timespec times[2] = {when, when};
    const fs::path path = root_ / "cache/v1/models" / record.Key().ToHex();
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return record;
  }

  fs::path root_;
  std::unique_ptr<KernelCache> cache_;
  Digest shared_;
};

TEST_F(CacheCareTest, ListsModelsMostRecentlyUsedFirst) {
  Add("old", 1000);
  Add("new", 10);
  const auto listing = cache_->List();
  ASSERT_TRUE(listing.ok());
  ASSERT_THAT(listing->models, SizeIs(2));
  EXPECT_EQ(listing->models[0].record.name, "new");
  EXPECT_GT(listing->models[0].size_bytes, 100000u);
  EXPECT_EQ(listing->objects, 5);
  EXPECT_THAT(listing->problems, IsEmpty());
}

TEST_F(CacheCareTest, PrunesTheLeastRecentlyUsedAndWhatNobodyNeeds) {
  Add("a", 3000);
  const ModelRecord b = Add("b", 2000);
  Add("c", 1000);
  const Digest orphan = *cache_->Put(AsBytes("nobody's"));
  // Finding it is a use.
  ASSERT_TRUE(cache_->FindModel(Source("a")).ok());
  const auto report = cache_->Prune(250000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->models_removed, 1);
  EXPECT_EQ(report->objects_removed, 3);  // b's program and weights, the orphan
  EXPECT_LE(report->bytes_kept, 250000u);
  EXPECT_TRUE(cache_->HasModel(Source("a")));
  EXPECT_FALSE(cache_->HasModel(Source("b")));
  EXPECT_TRUE(cache_->HasModel(Source("c")));
  EXPECT_FALSE(cache_->Contains(orphan));
  EXPECT_FALSE(cache_->Contains(b.program));
  EXPECT_TRUE(cache_->Contains(shared_));
  EXPECT_FALSE(cache_->FindKernel(Sha256(AsBytes("b"))).ok());
  EXPECT_TRUE(cache_->FindKernel(Sha256(AsBytes("a"))).ok());
  EXPECT_THAT(cache_->Verify()->problems, IsEmpty());
  EXPECT_EQ(cache_->Prune(0)->models_removed, 2);
  EXPECT_EQ(cache_->List()->objects, 0);
}

TEST_F(CacheCareTest, AModelThatAloneIsTooLargeDrivesNoOtherOut) {
  Add("a", 3000);
  Add("b", 2000);
  Add("large", 10, /*weights_size=*/300000);
  const auto report = cache_->Prune(250000);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->models_removed, 1);
  EXPECT_TRUE(cache_->HasModel(Source("a")));
  EXPECT_TRUE(cache_->HasModel(Source("b")));
  EXPECT_FALSE(cache_->HasModel(Source("large")));
}

TEST_F(CacheCareTest, PruneToLimitDoesNothingWhileACompileRuns) {
  const Digest orphan = *cache_->Put(AsBytes("of a compile that is not done"));
  {
    const auto lock = cache_->LockModel(Source("m"));
    ASSERT_TRUE(lock.ok());
    ASSERT_TRUE(Open("cache")->PruneToLimit().ok());
    EXPECT_TRUE(cache_->Contains(orphan));
  }
  ASSERT_TRUE(cache_->PruneToLimit().ok());
  EXPECT_FALSE(cache_->Contains(orphan));
}

TEST_F(CacheCareTest, PruningKeepsTheObjectsOfAModelThatStayedInThisProcess) {
  // Objects can be written, records cannot.
  fs::remove_all(root_ / "cache/v1/models");
  const ModelSource source = Source("m");
  ModelRecord record{.name = "m", .target = source.target};
  record.sources.push_back({"m.onnx", *cache_->FileDigest(source.path)});
  record.program = *cache_->Put(AsBytes("program"));
  record.objects = {*cache_->Put(AsBytes("code"))};
  const Digest orphan = *cache_->Put(AsBytes("nobody's"));
  ASSERT_TRUE(cache_->PutModel(record).ok());
  ASSERT_EQ(cache_->counters().objects_in_memory, 0);
  ASSERT_EQ(cache_->Prune(0)->objects_removed, 2);  // the orphan, and what the fixture stored
  EXPECT_FALSE(cache_->Contains(orphan));
  EXPECT_TRUE(cache_->FindModel(source).ok());
  EXPECT_EQ(AsText((*cache_->Get(record.program))->bytes()), "program");
  EXPECT_EQ(AsText((*cache_->Get(record.objects[0]))->bytes()), "code");
}

TEST_F(CacheCareTest, VerifyNamesWhatIsWrong) {
  const ModelRecord record = Add("m", 10);
  EXPECT_THAT(cache_->Verify()->problems, IsEmpty());
  // The payload of weights is altered so that XXH3 alone would have to notice, and a record cut.
  const fs::path weights = root_ / "cache/v1/objects" / record.objects[1].ToHex();
  {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(50000);
    file.put('x');
  }
  fs::resize_file(root_ / "cache/v1/models" / record.Key().ToHex(), 30);
  std::ofstream(root_ / "cache/v1/objects/not-a-digest") << "foreign";
  fs::remove(root_ / "cache/v1/objects" / record.program.ToHex());
  const auto report = cache_->Verify();
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->problems, SizeIs(3));
  EXPECT_EQ(cache_->List()->problems.size(), 1u);
}

TEST_F(CacheCareTest, ExportAndImportCarryModelsToAnotherDirectory) {
  Add("a", 20);
  Add("b", 10);
  const std::string archive = (root_ / "all.stampmill").string();
  ASSERT_TRUE(cache_->Export(archive, {}).ok());
  auto other = Open("other");
  const auto imported = other->Import(archive);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(*imported, 2);
  EXPECT_TRUE(other->HasModel(Source("a")));
  EXPECT_TRUE(other->HasModel(Source("b")));
  EXPECT_TRUE(other->FindKernel(Sha256(AsBytes("a"))).ok());
  EXPECT_THAT(other->Verify()->problems, IsEmpty());

  const std::vector<std::string> chosen = {"b"};
  ASSERT_TRUE(cache_->Export(archive, chosen).ok());
  auto third = Open("third");
  EXPECT_EQ(*third->Import(archive), 1);
  EXPECT_FALSE(third->HasModel(Source("a")));
  const std::vector<std::string> unknown = {"nobody"};
  EXPECT_EQ(cache_->Export(archive, unknown).code(), absl::StatusCode::kNotFound);
}

TEST_F(CacheCareTest, ExportSparesALinkAndWhatAKilledExportLeft) {
  Add("a", 10);
  const fs::path folder = root_ / "archives";
  fs::create_directory(folder);
  std::ofstream(folder / "archive") << "old";
  fs::create_symlink("archive", folder / "link");
  // Names that end in a number were once those of other processes' temporary files.
  std::ofstream(folder / absl::StrCat("archive.", getpid(), ".writing")) << "left";
  ASSERT_TRUE(cache_->Export((folder / "link").string(), {}).ok());
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(*Open("second")->Import((folder / "archive").string()), 1);
  EXPECT_EQ(cache_->Export(folder.string(), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 3);
}

TEST_F(CacheCareTest, ImportRefusesAnAlteredArchiveWhole) {
  Add("a", 20);
  const std::string archive = (root_ / "a.stampmill").string();
  ASSERT_TRUE(cache_->Export(archive, {}).ok());
  const std::string whole = *ReadFile(archive);
  auto other = Open("other");
  for (size_t place = 0; place < whole.size(); place += 1 + whole.size() / 300) {
    std::string altered = whole;
    altered[place] = static_cast<char>(altered[place] ^ 0x20);
    std::ofstream(archive, std::ios::binary) << altered;
    const auto imported = other->Import(archive);
    // Padding between contents is nobody's.
    if (imported.ok()) continue;
    EXPECT_EQ(imported.status().code(), absl::StatusCode::kDataLoss) << imported.status();
    EXPECT_EQ(other->List()->objects, 0) << place;
  }
  for (const size_t size : {size_t{0}, size_t{10}, size_t{64}, size_t{200}, whole.size() - 100}) {
    std::ofstream(archive, std::ios::binary) << whole.substr(0, size);
    EXPECT_EQ(other->Import(archive).status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(CacheCareTest, CareNeedsADirectoryThatCanBeWritten) {
  auto none = *KernelCache::Open({});
  EXPECT_EQ(none->Prune(0).status().code(), absl::StatusCode::kFailedPrecondition);
  auto reader = *KernelCache::Open({.directory = (root_ / "cache").string(), .writable = false});
  EXPECT_TRUE(reader->List().ok());
  EXPECT_EQ(reader->Prune(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reader->Import("x").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace stampmill
