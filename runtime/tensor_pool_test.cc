#include "runtime/tensor_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "runtime/limits.h"

namespace stampmill {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<TensorPool> MakePool(uint64_t size_bytes, bool allow_client_shm = true) {
  auto pool = TensorPool::Create({.size_bytes = size_bytes, .allow_client_shm = allow_client_shm});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

// A shared memory object as a client makes one, removed with the test.
class ClientObject {
 public:
  explicit ClientObject(uint64_t size) {
    static std::atomic<int> made{0};
    key_ = absl::StrCat("stampmill_test_", std::random_device()(), "_", made.fetch_add(1));
    fd_ =
        FileDescriptor(shm_open(absl::StrCat("/", key_).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    EXPECT_TRUE(fd_.valid());
    Resize(size);
  }
  ~ClientObject() { shm_unlink(absl::StrCat("/", key_).c_str()); }

  void Resize(uint64_t size) { EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(size)), 0); }
  void Write(uint64_t offset, char value) {
    EXPECT_EQ(pwrite(fd_.get(), &value, 1, static_cast<off_t>(offset)), 1);
  }
  char Read(uint64_t offset) const {
    char value = 0;
    EXPECT_EQ(pread(fd_.get(), &value, 1, static_cast<off_t>(offset)), 1);
    return value;
  }
  const std::string& key() const { return key_; }

 private:
  std::string key_;
  FileDescriptor fd_;
};

TEST(TensorPoolTest, LeasesAreAlignedDisjointAndReturned) {
  const auto pool = MakePool(kMiB);
  {
    absl::StatusOr<Lease> a = pool->Allocate(1000);
    absl::StatusOr<Lease> b = pool->Allocate(0);
    absl::StatusOr<Lease> c = pool->Allocate(64);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    EXPECT_EQ(a->bytes().size(), 1000u);
    EXPECT_TRUE(b->valid());
    EXPECT_TRUE(b->bytes().empty());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->bytes().data()) % 64, 0u);
    EXPECT_GE(c->bytes().data(), a->bytes().data() + 1000);
    pool->CheckInvariants();
  }
  EXPECT_EQ(pool->used_bytes(), 0u);
  pool->CheckInvariants();
  EXPECT_TRUE(pool->Allocate(kMiB).ok());
}

TEST(TensorPoolTest, ALeaseLivesAsLongAsItsLastSlice) {
  const auto pool = MakePool(kMiB);
  Lease slice;
  {
    Lease whole = *pool->Allocate(kMiB);
    slice = whole.Slice(100, 10);
    EXPECT_EQ(slice.bytes().data(), whole.bytes().data() + 100);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(pool->Allocate(64).status()));
  slice = Lease();
  EXPECT_TRUE(pool->Allocate(64).ok());
}

TEST(TensorPoolTest, RefusesMoreThanThereIsWithTheLimit) {
  const auto pool = MakePool(kMiB);
  const Lease half = *pool->Allocate(kMiB / 2);
  for (const uint64_t size : {kMiB, kMiB + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status status = pool->Allocate(size).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    const absl::string_view limit = size > kMiB ? "limit 1048576" : "limit 524288 free of 1048576";
    EXPECT_NE(status.message().find(limit), absl::string_view::npos) << status;
  }
}

TEST(TensorPoolTest, FreePagesGoBackAndUsedOnesStay) {
  const auto pool = MakePool(kMiB);
  const Lease kept = *pool->Allocate(100);
  std::memset(kept.bytes().data(), 7, 100);
  {
    const Lease lease = *pool->Allocate(kMiB / 2);
    std::memset(lease.bytes().data(), 7, lease.bytes().size());
  }
  const auto resident_pages = [&pool] {
    std::vector<unsigned char> pages(kMiB / 4096);
    EXPECT_EQ(mincore(pool->arena().data(), kMiB, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; });
  };
  EXPECT_GT(resident_pages(), 100);
  pool->ReturnFreePages();
  EXPECT_LE(resident_pages(), 1);
  EXPECT_EQ(kept.bytes()[99], std::byte{7});
}

TEST(TensorPoolTest, RandomAllocationsKeepTheInvariants) {
  const auto pool = MakePool(4 * kMiB);
  std::mt19937 random(1);
  std::vector<Lease> leases;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 5 < 3) {
      absl::StatusOr<Lease> lease = pool->Allocate(random() % (random() % 2 ? 500 : 200000));
      if (lease.ok()) {
        std::memset(lease->bytes().data(), static_cast<int>(leases.size()), lease->bytes().size());
        leases.push_back(*std::move(lease));
      }
    } else if (!leases.empty()) {
      std::swap(leases[random() % leases.size()], leases.back());
      leases.pop_back();
    }
    if (i % 50 == 0) pool->CheckInvariants();
  }
  for (size_t i = 0; i < leases.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto a = leases[i].bytes(), b = leases[j].bytes();
      EXPECT_TRUE(a.empty() || b.empty() || a.data() + a.size() <= b.data() ||
                  b.data() + b.size() <= a.data());
    }
  }
  leases.clear();
  pool->CheckInvariants();
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(TensorPoolTest, ManyThreadsShareThePool) {
  const auto pool = MakePool(4 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 2000; ++i) {
        const Lease lease = *pool->Allocate(random() % 10000);
        std::memset(lease.bytes().data(), t, lease.bytes().size());
        const Lease copy = lease;
        for (const std::byte b : copy.bytes()) ASSERT_EQ(b, static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  pool->CheckInvariants();
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(ClientRegionTest, IsReadAndWrittenInPlace) {
  const auto pool = MakePool(kMiB);
  ClientObject object(10000);
  object.Write(5000, 'a');
  ASSERT_TRUE(pool->RegisterClientRegion("r", "/" + object.key(), 4999, 5001).ok());
  absl::StatusOr<Lease> lease = pool->ClaimClientRegion("r", 1, 5000);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(lease->client_owned());
  EXPECT_EQ(lease->bytes()[0], static_cast<std::byte>('a'));
  lease->bytes()[4999] = static_cast<std::byte>('z');
  EXPECT_EQ(object.Read(9999), 'z');
  EXPECT_TRUE(lease->CheckIntact().ok());
}

TEST(ClientRegionTest, IsRefusedUnlessAllowed) {
  const auto pool = MakePool(kMiB, /*allow_client_shm=*/false);
  const absl::Status status = pool->RegisterClientRegion("r", "k", 0, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
            "enable.");
  EXPECT_EQ(pool->UnregisterClientRegion("r").code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(pool->ClientRegions("").ok());
}

TEST(ClientRegionTest, HostileRegistrationsAreRefused) {
  const auto pool = MakePool(kMiB);
  ClientObject object(8192);
  const std::string& key = object.key();
  const auto code = [&](absl::string_view k, uint64_t offset, uint64_t size) {
    return pool->RegisterClientRegion("r", k, offset, size).code();
  };
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(code(key, 0, 8193), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(key, 1, 8192), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(key, 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(key, kMax, 2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(key, 2, kMax), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("", 0, 1), absl::StatusCode::kInternal);
  EXPECT_EQ(code("../etc/passwd", 0, 1), absl::StatusCode::kInternal);
  EXPECT_EQ(code(absl::string_view("a\0b", 3), 0, 1), absl::StatusCode::kInternal);
  EXPECT_EQ(code("triton_python_backend_shm_region_1", 0, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool->RegisterClientRegion("r", "stampmill_absent", 0, 1).message(),
            "Unable to open shared memory region: 'stampmill_absent'");
  EXPECT_EQ(code(key, 0, 8192), absl::StatusCode::kOk);
  const absl::Status again = pool->RegisterClientRegion("r", key, 0, 1);
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.message(), "shared memory region 'r' already in manager");
}

TEST(ClientRegionTest, ClaimsOutsideOfTheRegionAreRefused) {
  const auto pool = MakePool(kMiB);
  ClientObject object(8192);
  ASSERT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, 100).ok());
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(pool->ClaimClientRegion("x", 0, 1).status().message(),
            "Unable to find shared memory region: 'x'");
  EXPECT_TRUE(absl::IsNotFound(pool->ClaimClientRegion("x", 0, 1).status()));
  EXPECT_EQ(pool->ClaimClientRegion("r", 100, 1).status().message(),
            "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(pool->ClaimClientRegion("r", 50, 51).status().message(),
            "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_TRUE(absl::IsInvalidArgument(pool->ClaimClientRegion("r", kMax, 2).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(pool->ClaimClientRegion("r", 2, kMax).status()));
  EXPECT_TRUE(pool->ClaimClientRegion("r", 0, 100).ok());
  EXPECT_TRUE(pool->ClaimClientRegion("r", 100, 0).ok());
}

TEST(ClientRegionTest, UnregisteringWhileInFlightKeepsTheMemoryUntilTheLeaseGoes) {
  const auto pool = MakePool(kMiB);
  ClientObject object(4096);
  object.Write(7, 'x');
  ASSERT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, 4096).ok());
  Lease lease = *pool->ClaimClientRegion("r", 0, 4096);
  EXPECT_TRUE(pool->UnregisterClientRegion("r").ok());
  EXPECT_TRUE(absl::IsNotFound(pool->ClaimClientRegion("r", 0, 1).status()));
  EXPECT_TRUE(pool->ClientRegions("")->empty());
  EXPECT_EQ(lease.bytes()[7], static_cast<std::byte>('x'));
  // The name is free at once.
  EXPECT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, 1).ok());
  EXPECT_TRUE(pool->UnregisterClientRegion("unknown").ok());
}

TEST(ClientRegionTest, StatusTellsAllOrTheNamedOne) {
  const auto pool = MakePool(kMiB);
  ClientObject object(4096);
  ASSERT_TRUE(pool->RegisterClientRegion("b", object.key(), 0, 10).ok());
  ASSERT_TRUE(pool->RegisterClientRegion("a", "/" + object.key(), 8, 20).ok());
  const auto all = pool->ClientRegions("");
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].name, "a");
  EXPECT_EQ((*all)[0].key, "/" + object.key());
  EXPECT_EQ((*all)[0].offset, 8u);
  EXPECT_EQ((*all)[0].byte_size, 20u);
  EXPECT_EQ(pool->ClientRegions("b")->size(), 1u);
  EXPECT_EQ(pool->ClientRegions("c").status().message(),
            "Unable to find system shared memory region: 'c'");
  EXPECT_TRUE(pool->UnregisterAllClientRegions().ok());
  EXPECT_TRUE(pool->ClientRegions("")->empty());
}

TEST(ClientRegionTest, TheNumberOfRegionsHasALimit) {
  const auto pool = MakePool(kMiB);
  ClientObject object(4096);
  for (int i = 0; i < kClientRegionsMax; ++i) {
    ASSERT_TRUE(pool->RegisterClientRegion(absl::StrCat("r", i), object.key(), 0, 4096).ok()) << i;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(pool->RegisterClientRegion("last", object.key(), 0, 4096)));
}

TEST(ClientRegionTest, TruncationUnderALeaseCostsTheContentsAndNotTheProcess) {
  const auto pool = MakePool(kMiB);
  constexpr uint64_t kPages = 16 * 4096;
  ClientObject object(kPages);
  for (uint64_t i = 0; i < kPages; i += 4096) object.Write(i, 'q');
  ASSERT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, kPages).ok());
  ASSERT_TRUE(pool->RegisterClientRegion("other", object.key(), 0, 4096).ok());
  const Lease lease = *pool->ClaimClientRegion("r", 0, kPages);
  const Lease other = *pool->ClaimClientRegion("other", 0, 4096);
  object.Resize(4096);
  std::atomic<int> nonzero{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      for (const std::byte b : lease.bytes()) nonzero += b != std::byte{0};
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(nonzero, 2);  // the page that is left, by two readers
  lease.bytes()[kPages - 1] = std::byte{1};
  EXPECT_TRUE(absl::IsInvalidArgument(lease.CheckIntact())) << lease.CheckIntact();
  EXPECT_TRUE(other.CheckIntact().ok());
  EXPECT_TRUE(absl::IsInvalidArgument(pool->ClaimClientRegion("r", 0, 1).status()));
  // Registered anew it works again.
  EXPECT_TRUE(pool->UnregisterClientRegion("r").ok());
  EXPECT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, 4096).ok());
  EXPECT_TRUE(pool->ClaimClientRegion("r", 0, 4096).ok());
}

TEST(ClientRegionDeathTest, ABusErrorElsewhereStillEndsTheProcess) {
  const auto pool = MakePool(kMiB);
  ClientObject object(4096);
  ASSERT_TRUE(pool->RegisterClientRegion("r", object.key(), 0, 4096).ok());
  EXPECT_DEATH(
      {
        const int fd = memfd_create("gone", 0);
        EXPECT_EQ(ftruncate(fd, 4096), 0);
        auto* const page =
            static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
        EXPECT_EQ(ftruncate(fd, 0), 0);
        const char touched = page[0];
        _exit(touched);
      },
      "");
}

}  // namespace
}  // namespace stampmill
