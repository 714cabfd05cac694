#include "compiler/cache/kernel_cache.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Pattern(size_t size, int seed) {
  std::string text(size, '\0');
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Permissions do not bind the superuser: this takes that right from the thread as long as it lives.
class BoundByPermissions {
 public:
  BoundByPermissions() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct without[2] = {before_[0], before_[1]};
    without[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    EXPECT_EQ(syscall(SYS_capset, &header_, without), 0);
  }
  ~BoundByPermissions() { EXPECT_EQ(syscall(SYS_capset, &header_, before_), 0); }

 private:
  __user_cap_header_struct header_ = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct before_[2] = {};
};

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/cache_XXXXXX");
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    WriteText(root_ / "model.onnx", "the model");
  }
  ~KernelCacheTest() override { fs::remove_all(root_); }

  std::string directory() const { return (root_ / "cache").string(); }
  fs::path v1() const { return root_ / "cache" / "v1"; }
  std::unique_ptr<KernelCache> Open(bool writable = true) {
    auto cache = KernelCache::Open({.directory = directory(), .writable = writable});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  ModelSource Source() const {
    return {.path = (root_ / "model.onnx").string(), .target = "cpu:x86-64-v3"};
  }
  // A model of one program, one artifact and weights of `weights_size` bytes.
  ModelRecord MakeModel(KernelCache& cache, int seed = 1, size_t weights_size = 3 << 20) {
    const ModelSource source = Source();
    ModelRecord record{.name = "model", .target = source.target, .options = source.options};
    record.sources.push_back({"model.onnx", *cache.FileDigest(source.path)});
    record.program = *cache.Put(AsBytes(absl::StrCat("program ", seed)));
    const std::string artifact = Pattern(5000, seed);
    const std::string weights = Pattern(weights_size, seed + 1);
    const std::span<const std::byte> part = AsBytes(weights);
    record.objects = {*cache.Put(AsBytes(artifact)), *cache.PutWeights({&part, 1})};
    EXPECT_TRUE(cache.PutModel(record).ok());
    return record;
  }

  fs::path root_;
};

TEST_F(KernelCacheTest, FindsAModelWithItsObjectsAfterReopening) {
  ModelRecord record;
  {
    const auto cache = Open();
    EXPECT_EQ(cache->FindModel(Source()).status().code(), absl::StatusCode::kNotFound);
    record = MakeModel(*cache);
    EXPECT_EQ(cache->counters().misses, 1);
  }
  const auto cache = Open();
  const auto found = cache->FindModel(Source());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->program, record.program);
  EXPECT_EQ(AsText((*cache->Get(found->program))->bytes()), "program 1");
  const CacheObjectPtr weights = *cache->Get(found->objects[1]);
  EXPECT_TRUE(weights->is_weights());
  EXPECT_EQ(AsText(weights->bytes()), Pattern(3 << 20, 2));
  EXPECT_EQ(weights->offset() % 4096, 0u);
  EXPECT_EQ(cache->counters().hits, 1);
  EXPECT_EQ(cache->counters().misses, 0);
  EXPECT_EQ(cache->counters().corrupt_refused, 0);
}

TEST_F(KernelCacheTest, KeyDependsOnFileTargetOptionsAndCompiler) {
  const auto cache = Open();
  MakeModel(*cache);
  EXPECT_TRUE(cache->HasModel(Source()));
  ModelSource source = Source();
  source.target = "cpu:x86-64";
  EXPECT_FALSE(cache->HasModel(source));
  source = Source();
  source.options = "x=1";
  EXPECT_FALSE(cache->HasModel(source));
  source = Source();
  source.compiler_abi.bytes[0] = 1;
  EXPECT_FALSE(cache->HasModel(source));
  WriteText(root_ / "model.onnx", "the model, changed");
  EXPECT_FALSE(cache->HasModel(Source()));
  WriteText(root_ / "model.onnx", "the model");
  EXPECT_TRUE(cache->HasModel(Source()));
  fs::remove(root_ / "model.onnx");
  EXPECT_THAT(cache->FindModel(Source()).status().message(), HasSubstr("model.onnx"));
}

TEST_F(KernelCacheTest, ExternalDataIsPartOfTheKey) {
  WriteText(root_ / "weights.bin", "w1");
  const auto cache = Open();
  ModelRecord record = MakeModel(*cache);
  record.sources.push_back({"weights.bin", *cache->FileDigest((root_ / "weights.bin").string())});
  ASSERT_TRUE(cache->PutModel(record).ok());
  EXPECT_TRUE(cache->HasModel(Source()));
  WriteText(root_ / "weights.bin", "w22");
  EXPECT_FALSE(cache->HasModel(Source()));
  record.sources[1].path = "../outside.bin";
  EXPECT_EQ(cache->PutModel(record).code(), absl::StatusCode::kInvalidArgument);
  record.sources[1].path = "line\nbreak";
  EXPECT_EQ(cache->PutModel(record).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KernelCacheTest, RefusesARecordWhoseObjectsAreMissing) {
  const auto cache = Open();
  ModelRecord record = MakeModel(*cache);
  record.program.bytes[0] ^= 1;
  EXPECT_EQ(cache->PutModel(record).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(KernelCacheTest, EqualDigestsShareOneMapping) {
  const auto cache = Open();
  const ModelRecord record = MakeModel(*cache);
  EXPECT_EQ(*cache->Get(record.program), *cache->Get(record.program));
}

TEST_F(KernelCacheTest, RefusesObjectsThatAreAlteredAnywhere) {
  const ModelRecord record = MakeModel(*Open());
  for (const Digest& digest : {record.program, record.objects[0], record.objects[1]}) {
    const fs::path path = v1() / "objects" / digest.ToHex();
    const std::string whole = ReadText(path);
    std::vector<size_t> places = {0,
                                  1,
                                  8,
                                  12,
                                  16,
                                  24,
                                  32,
                                  63,
                                  64,
                                  72,
                                  100,
                                  4095,
                                  4096,
                                  4097,
                                  (1 << 20) + 5000,
                                  whole.size() / 2,
                                  whole.size() - 1};
    for (const size_t place : places) {
      if (place >= whole.size()) continue;
      std::string altered = whole;
      altered[place] ^= 0x40;
      WriteText(path, altered);
      const auto cache = Open();
      const auto object = cache->Get(digest);
      EXPECT_EQ(object.status().code(), absl::StatusCode::kDataLoss) << place;
      EXPECT_EQ(cache->counters().corrupt_refused, 1);
      EXPECT_FALSE(fs::exists(path)) << "a corrupt object is removed";
      EXPECT_FALSE(cache->HasModel(Source())) << "so that the model is compiled anew";
    }
    for (const size_t size : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
      WriteText(path, whole.substr(0, size));
      EXPECT_EQ(Open()->Get(digest).status().code(), absl::StatusCode::kDataLoss) << size;
    }
    WriteText(path, whole + "x");
    EXPECT_EQ(Open()->Get(digest).status().code(), absl::StatusCode::kDataLoss);
    WriteText(path, whole);
  }
  // A whole object under a foreign name.
  fs::copy_file(v1() / "objects" / record.program.ToHex(),
                v1() / "objects" / record.objects[1].ToHex(), fs::copy_options::overwrite_existing);
  EXPECT_EQ(Open()->Get(record.objects[1]).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(KernelCacheTest, RefusesRecordsThatAreAlteredAndIsRebuilt) {
  const ModelRecord record = MakeModel(*Open());
  const fs::path path = v1() / "models" / record.Key().ToHex();
  const fs::path files = v1() / "models" / (record.sources[0].digest.ToHex() + ".files");
  for (const fs::path& victim : {path, files}) {
    const std::string whole = ReadText(victim);
    for (size_t place = 0; place < whole.size(); place += 7) {
      std::string altered = whole;
      altered[place] ^= 0x01;
      WriteText(victim, altered);
      const auto cache = Open();
      EXPECT_EQ(cache->FindModel(Source()).status().code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(cache->counters().corrupt_refused, 1);
      EXPECT_FALSE(fs::exists(victim));
    }
    ASSERT_TRUE(Open()->PutModel(record).ok());
    EXPECT_EQ(ReadText(victim), whole);
  }
}

TEST_F(KernelCacheTest, PutReplacesACorruptObject) {
  const ModelRecord record = MakeModel(*Open());
  WriteText(v1() / "objects" / record.program.ToHex(), "program 2");
  const auto cache = Open();
  EXPECT_EQ(*cache->Put(AsBytes("program 1")), record.program);
  EXPECT_EQ(AsText((*cache->Get(record.program))->bytes()), "program 1");
  EXPECT_TRUE(cache->HasModel(Source()));
}

TEST_F(KernelCacheTest, ACorruptObjectInAReadOnlyDirectoryIsReplacedInMemory) {
  const ModelRecord record = MakeModel(*Open());
  WriteText(v1() / "objects" / record.program.ToHex(), "program 2");
  const auto cache = Open(/*writable=*/false);
  EXPECT_TRUE(cache->read_only());
  EXPECT_EQ(cache->Get(record.program).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(cache->HasModel(Source()));
  EXPECT_EQ(*cache->Put(AsBytes("program 1")), record.program);
  EXPECT_TRUE(cache->HasModel(Source()));
  EXPECT_EQ(AsText((*cache->Get(record.program))->bytes()), "program 1");
  EXPECT_EQ(ReadText(v1() / "objects" / record.program.ToHex()), "program 2");
}

TEST_F(KernelCacheTest, WithoutADirectoryEverythingStaysInTheProcess) {
  auto cache = *KernelCache::Open({});
  const ModelRecord record = MakeModel(*cache);
  EXPECT_TRUE(cache->FindModel(Source()).ok());
  EXPECT_EQ(cache->counters().objects_in_memory, 3);
  EXPECT_THAT(cache->in_memory().objects, SizeIs(3));
  EXPECT_THAT(cache->in_memory().models, SizeIs(1));
  EXPECT_FALSE(cache->List().ok());
  // Another process of the same user would get them like this.
  auto other = *KernelCache::Open({});
  for (const CacheObjectPtr& object : cache->in_memory().objects) {
    ASSERT_TRUE(other->Adopt(object->digest(), FileDescriptor(dup(object->file().get()))).ok());
  }
  ASSERT_TRUE(other->PutModel(record).ok());
  EXPECT_TRUE(other->FindModel(Source()).ok());
  // Whatever stays in memory is told of, wherever it was made.
  EXPECT_EQ(cache->counters().write_failures, 3);
  EXPECT_EQ(other->counters().write_failures, 3);
  FileDescriptor unsealed = *CreateMemfd("unsealed", 10);
  EXPECT_EQ(other->Adopt(Digest{}, std::move(unsealed)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KernelCacheTest, ADirectoryThatCannotBeMadeIsServedWithout) {
  auto cache = KernelCache::Open({.directory = "/proc/no-such-place/cache"});
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_THAT((*cache)->read_only_reason(), HasSubstr("/proc/no-such-place"));
  MakeModel(**cache);
  EXPECT_TRUE((*cache)->FindModel(Source()).ok());
}

TEST_F(KernelCacheTest, ADirectoryWithoutWritePermissionIsServedFrom) {
  const ModelRecord record = MakeModel(*Open());
  const BoundByPermissions bound;
  for (const char* folder : {"", "objects", "models", "kernels", "digests", "tmp"}) {
    fs::permissions(v1() / folder, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const auto cache = Open();
  EXPECT_TRUE(cache->read_only());
  EXPECT_TRUE(cache->FindModel(Source()).ok());
  for (const char* folder : {"", "objects", "models", "kernels", "digests", "tmp"}) {
    fs::permissions(v1() / folder, fs::perms::owner_all);
  }
}

TEST_F(KernelCacheTest, RefusesADirectoryThatOthersMayWrite) {
  MakeModel(*Open());
  fs::permissions(v1() / "objects", fs::perms::group_write, fs::perm_options::add);
  auto cache = KernelCache::Open({.directory = directory()});
  EXPECT_EQ(cache.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(cache.status().message(), HasSubstr("objects"));
  fs::permissions(v1() / "objects", fs::perms::group_write, fs::perm_options::remove);
  cache = KernelCache::Open({.directory = directory(), .is_default = true});
  EXPECT_THAT(cache.status().message(), HasSubstr("limit 0700"));
  fs::permissions(root_ / "cache", fs::perms::owner_all);
  EXPECT_TRUE(KernelCache::Open({.directory = directory(), .is_default = true}).ok());
  const auto file = KernelCache::Open({.directory = (root_ / "model.onnx").string()});
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
}

// As a volume that is given to a group comes, or one that everybody may write.
TEST_F(KernelCacheTest, SaysWhyADirectoryOfAGroupOrOfEverybodyIsRefused) {
  MakeModel(*Open());
  for (const auto& [mode, words] : {std::pair(0775, "0775"), std::pair(0777, "0777"),
                                    std::pair(01777, "1777"), std::pair(02775, "2775")}) {
    ASSERT_EQ(chmod(directory().c_str(), static_cast<mode_t>(mode)), 0);
    const absl::Status status = KernelCache::Open({.directory = directory()}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << words;
    EXPECT_THAT(status.message(), HasSubstr("may be written by others than its owner"));
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("got mode ", words, ", limit 0755")));
  }
  ASSERT_EQ(chmod(directory().c_str(), 0755), 0);
  EXPECT_TRUE(KernelCache::Open({.directory = directory()}).ok());
}

TEST_F(KernelCacheTest, RefusesAnObjectThatOthersMayWrite) {
  const ModelRecord record = MakeModel(*Open());
  fs::permissions(v1() / "objects" / record.program.ToHex(), fs::perms::others_write,
                  fs::perm_options::add);
  const auto cache = Open();
  const absl::Status status = cache->Get(record.program).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("may be written by others"));
  EXPECT_EQ(cache->counters().corrupt_refused, 1);
  EXPECT_FALSE(cache->HasModel(Source()));
}

TEST_F(KernelCacheTest, WhatAnotherProcessPutsInPlaceOfADamagedObjectIsUsed) {
  const ModelRecord record = MakeModel(*Open());
  const fs::path path = v1() / "objects" / record.program.ToHex();
  for (const bool writable : {true, false}) {
    WriteText(path, "program 2");
    const auto cache = Open(writable);
    EXPECT_EQ(cache->Get(record.program).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_FALSE(cache->HasModel(Source()));
    // As a compile worker does, which tells what it finds.
    const auto other = Open();
    EXPECT_EQ(*other->Put(AsBytes("program 1")), record.program);
    EXPECT_TRUE(cache->HasModel(Source()));
    EXPECT_EQ(AsText((*cache->Get(record.program))->bytes()), "program 1");
    EXPECT_EQ(cache->counters().corrupt_refused, 1);
  }
}

TEST_F(KernelCacheTest, ADamagedObjectThatStaysIsCountedAndToldOfOnce) {
  const ModelRecord record = MakeModel(*Open());
  const fs::path path = v1() / "objects" / record.program.ToHex();
  WriteText(path, "program 2");
  std::vector<std::string> told;
  const auto open = [&] {
    return *KernelCache::Open(
        {.directory = directory(), .writable = false, .refused = [&told](absl::string_view what) {
           told.emplace_back(what);
         }});
  };
  const auto cache = open();
  EXPECT_FALSE(cache->Get(record.program).ok());
  EXPECT_FALSE(cache->Get(record.program).ok());
  // What a compile worker says of the same entry is nothing new; of another that is damaged it is.
  cache->CountRefused(absl::StrCat(path.string(), " refused: altered"));
  EXPECT_THAT(told, SizeIs(1));
  const std::string other = absl::StrCat((v1() / "objects").string(), "/other refused: altered");
  cache->CountRefused(other);
  EXPECT_THAT(told, SizeIs(2));
  EXPECT_EQ(cache->counters().corrupt_refused, 2);
}

TEST_F(KernelCacheTest, EntriesThatCannotBeUsedAreRefusedVerifiedAndRebuilt) {
  const ModelRecord record = MakeModel(*Open());
  const std::vector<fs::path> victims = {
      v1() / "objects" / record.program.ToHex(), v1() / "objects" / record.objects[1].ToHex(),
      v1() / "models" / record.Key().ToHex(),
      v1() / "models" / (record.sources[0].digest.ToHex() + ".files")};
  const BoundByPermissions bound;
  const std::vector<std::function<void(const fs::path&)>> spoils = {
      [](const fs::path& path) { fs::permissions(path, fs::perms::none); },
      [](const fs::path& path) { fs::permissions(path, fs::perms::all); },
      [](const fs::path& path) {
        fs::remove(path);
        fs::create_directory(path);
      },
      [](const fs::path& path) {
        fs::remove(path);
        fs::create_directories(path / "with" / "contents");
      },
      [](const fs::path& path) {
        fs::remove(path);
        EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
      },
      [](const fs::path& path) {
        fs::remove(path);
        fs::create_symlink(path.filename(), path);  // to itself
      },
      [](const fs::path& path) {
        fs::remove(path);
        fs::create_symlink("nowhere", path);
      }};
  for (const fs::path& victim : victims) {
    for (size_t i = 0; i < spoils.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(victim.string(), " spoilt in way ", i));
      spoils[i](victim);
      const auto cache = Open();
      EXPECT_GE(cache->Verify()->problems.size(), 1u);
      const auto load = [&] {
        const auto found = cache->FindModel(Source());
        absl::Status status = found.status();
        if (found.ok()) status.Update(cache->Get(found->program).status());
        if (found.ok()) status.Update(cache->Get(found->objects[1]).status());
        return status;
      };
      const int64_t verified = cache->counters().corrupt_refused;
      const absl::Status first = load();
      // An object whose name leads nowhere is as good as none.
      EXPECT_TRUE(absl::IsDataLoss(first) || absl::IsNotFound(first)) << first;
      EXPECT_LE(cache->counters().corrupt_refused, verified + 1);
      MakeModel(*cache);
      EXPECT_TRUE(load().ok());
      EXPECT_EQ(cache->counters().corrupt_refused, verified + 1);
      if (fs::is_directory(victim)) fs::remove_all(victim);  // what is in it is not ours to remove
      MakeModel(*Open());
      EXPECT_THAT(Open()->Verify()->problems, IsEmpty());
    }
  }
}

TEST_F(KernelCacheTest, ADirectoryThatCannotBeUsedIsServedWithout) {
  MakeModel(*Open());
  const BoundByPermissions bound;
  const auto expect_served_without = [&](const fs::path& culprit) {
    SCOPED_TRACE(culprit.string());
    for (const bool writable : {true, false}) {
      const auto cache = Open(writable);
      EXPECT_THAT(cache->read_only_reason(), HasSubstr(culprit.string()));
      EXPECT_EQ(cache->FindModel(Source()).status().code(), absl::StatusCode::kNotFound);
      MakeModel(*cache);
      EXPECT_TRUE(cache->FindModel(Source()).ok());
      EXPECT_EQ(cache->counters().write_failures, 3);
      EXPECT_EQ(cache->counters().corrupt_refused, 0);
      EXPECT_THAT(cache->Verify().status().message(), HasSubstr(culprit.string()));
    }
  };
  for (const fs::path& folder : {root_ / "cache", v1(), v1() / "objects", v1() / "models"}) {
    fs::permissions(folder, fs::perms::none);
    expect_served_without(folder);
    fs::permissions(folder, fs::perms::owner_all);
  }
  for (const fs::path& folder : {v1() / "models", v1()}) {
    fs::remove_all(folder);
    WriteText(folder, "a file");
    expect_served_without(folder);
    fs::remove(folder);
    fs::create_symlink(folder.filename(), folder);  // to itself
    expect_served_without(folder);
    fs::remove(folder);
  }
  EXPECT_TRUE(Open()->read_only_reason().empty());
}

TEST_F(KernelCacheTest, KernelRecordsNeedTheirArtifact) {
  const auto cache = Open();
  const Digest key = Sha256(AsBytes("kernel"));
  const Digest artifact = *cache->Put(AsBytes("code"));
  ASSERT_TRUE(cache->PutKernel(key, {.artifact = artifact, .entry = "k_1"}).ok());
  EXPECT_EQ(Open()->FindKernel(key)->entry, "k_1");
  fs::remove(v1() / "objects" / artifact.ToHex());
  EXPECT_EQ(Open()->FindKernel(key).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KernelCacheTest, RemembersTheDigestOfASettledFileOnly) {
  // A file that is old enough; its change of contents shows in the change time.
  const fs::path path = root_ / "model.onnx";
  const auto cache = Open();
  const Digest first = *cache->FileDigest(path.string());
  WriteText(path, "the model, changed");
  EXPECT_NE(*cache->FileDigest(path.string()), first);
  EXPECT_EQ(cache->FileDigest(root_.string()).status().code(), absl::StatusCode::kInvalidArgument);
}

// Runs `body` in a child process; returns its exit status as waitpid gives it.
int InChild(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(KernelCacheTest, AFullDiskKeepsObjectsInTheProcess) {
  const int status = InChild([this] {
    signal(SIGXFSZ, SIG_IGN);
    const auto cache = Open();
    const rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    // memfds are files to RLIMIT_FSIZE too: an object in memory must fail with a status.
    const std::string big = Pattern(100000, 1);
    if (cache->Put(AsBytes(big)).ok()) _exit(3);
    if (cache->counters().write_failures != 1) _exit(4);
    if (!cache->Put(AsBytes("small")).ok()) _exit(5);
    if (!fs::is_empty(v1() / "tmp")) _exit(6);
  });
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(KernelCacheTest, ADirectoryThatVanishesKeepsObjectsInTheProcess) {
  const auto cache = Open();
  fs::remove_all(root_ / "cache");
  const ModelRecord record = MakeModel(*cache);
  EXPECT_GE(cache->counters().write_failures, 3);
  EXPECT_EQ(cache->counters().objects_in_memory, 3);
  EXPECT_TRUE(cache->FindModel(Source()).ok());
}

TEST_F(KernelCacheTest, AKilledWriterLeavesNothingThatIsFound) {
  Open();
  // The child writes objects until it is killed; each ready one is announced through the pipe.
  for (int round = 0; round < 5; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto cache = *KernelCache::Open({.directory = directory()});
      for (int i = 0;; ++i) {
        const std::string bytes = Pattern(200000, round * 100000 + i);
        if (!cache->Put(AsBytes(bytes)).ok() || write(ends[1], "x", 1) != 1) _exit(1);
      }
    }
    char byte;
    for (int i = 0; i < 3 + round; ++i) ASSERT_EQ(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
  }
  WriteText(v1() / "tmp" / "0123.writing", "half of someth");
  const auto cache = Open();
  for (const auto& entry : fs::directory_iterator(v1() / "tmp")) {
    EXPECT_EQ(entry.path().extension(), ".lock") << entry.path();
  }
  const auto report = cache->Verify();
  ASSERT_TRUE(report.ok());
  EXPECT_GE(report->objects, 15);
  EXPECT_THAT(report->problems, IsEmpty());
}

// Each tries whether it can write; none may take another's trial for an abandoned file and be the
// worse for it.
TEST_F(KernelCacheTest, ManyProcessesOpenANewDirectoryAtOnce) {
  constexpr int kProcesses = 4, kDirectories = 200;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int n = 0; n < kDirectories; ++n) {
        const auto cache = KernelCache::Open({.directory = absl::StrCat(directory(), n)});
        if (!cache.ok()) _exit(1);
        if ((*cache)->read_only()) _exit(2);
        if ((*cache)->Put(AsBytes("x")).status() != absl::OkStatus()) _exit(3);
        if ((*cache)->counters().write_failures != 0) _exit(4);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST_F(KernelCacheTest, OpeningLeavesFilesOfLivingWritersAlone) {
  Open();
  const fs::path path = v1() / "tmp" / "4567.writing";
  const FileDescriptor writer = *OpenFile(path.string(), O_RDWR | O_CREAT);
  ASSERT_EQ(flock(writer.get(), LOCK_EX), 0);
  Open();
  EXPECT_TRUE(fs::exists(path));
}

// Many workers, in threads and processes, want the same model; it must be compiled once.
TEST_F(KernelCacheTest, AKeyIsCompiledOnceAcrossThreadsAndProcesses) {
  const auto compile_if_missing = [this](KernelCache& cache) {
    const auto lock = cache.LockModel(Source());
    if (!lock.ok()) return 1;
    if (cache.HasModel(Source())) return 0;
    std::ofstream(root_ / "compiled", std::ios::app) << "x";
    MakeModel(cache);
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const auto cache = Open();
      int failures[3] = {};
      std::vector<std::thread> threads;
      for (int& failure : failures) {
        threads.emplace_back([&] { failure = compile_if_missing(*cache); });
      }
      for (std::thread& thread : threads) thread.join();
      _exit(failures[0] + failures[1] + failures[2]);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(ReadText(root_ / "compiled"), "x");
}

TEST_F(KernelCacheTest, ALockIsFreeWhenItsProcessIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto cache = Open();
    const auto lock = cache->LockModel(Source());
    if (write(ends[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  const auto cache = Open();
  kill(child, SIGKILL);
  EXPECT_TRUE(cache->LockModel(Source()).ok());
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace stampmill
