// The ledger without Python: sums against a slow twin, ranges against arrays, counts against an array.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "ledger/coverage.h"
#include "ledger/fingerprint.h"

namespace fastshard {
namespace {

constexpr std::int64_t kMax = INT64_MAX;

Fingerprint of(const std::vector<std::int64_t>& ids) {
  Fingerprint sum;
  sum.add(ids.data(), ids.size());
  return sum;
}

std::uint64_t mixed(std::uint64_t x, int shift1, std::uint64_t by1, int shift2, std::uint64_t by2, int shift3) {
  x ^= x >> shift1;
  x *= by1;
  x ^= x >> shift2;
  x *= by2;
  return x ^ x >> shift3;
}

Fingerprint slow_twin(const std::vector<std::int64_t>& ids) {
  Fingerprint sum;
  for (std::int64_t id : ids) {
    const std::uint64_t spread = static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15;
    sum.count += 1;
    sum.first += mixed(spread + 0x243F6A8885A308D3, 30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31);
    sum.second += mixed(spread + 0x13198A2E03707344, 33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33);
  }
  return sum;
}

TEST(Fingerprint, SumsTheHashesOfIds) {
  std::mt19937_64 random(1);
  for (std::size_t n : {0, 1, 2, 7, 8, 9, 63, 64, 1000}) {
    std::vector<std::int64_t> ids(n);
    for (auto& id : ids) id = static_cast<std::int64_t>(random() >> (1 + random() % 60));
    EXPECT_EQ(of(ids), slow_twin(ids)) << n;
  }
}

TEST(Fingerprint, DoesNotDependOnTheOrderAndDoesOnRepeats) {
  EXPECT_EQ(of({3, 1, 2}), of({1, 2, 3}));
  EXPECT_FALSE(of({1, 1, 3}) == of({1, 2, 3}));
  EXPECT_FALSE(of({2, 2}) == of({1, 3}));
}

TEST(Fingerprint, OfARangeIsThatOfItsIds) {
  const std::int64_t starts[] = {0, 1, 5, 1 << 20, std::int64_t{1} << 32, kMax - 70};
  for (std::int64_t start : starts) {
    for (std::int64_t n : {0, 1, 2, 3, 8, 65}) {
      std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
      std::iota(ids.begin(), ids.end(), start);
      Fingerprint sum;
      sum.add_range(static_cast<std::uint64_t>(start), static_cast<std::uint64_t>(start + n));
      EXPECT_EQ(sum, of(ids)) << start << " and " << n;
    }
  }
}

TEST(Fingerprint, TakesAwayWhatItWasGiven) {
  Fingerprint sum = of({1, 2, 3, kMax});
  sum -= of({2, kMax});
  EXPECT_EQ(sum, of({1, 3}));
  sum -= of({1, 3, 4});
  sum += of({4});
  EXPECT_EQ(sum, Fingerprint());
}

// Bits of both hashes together flip by halves when a bit of the id does: the sums are independent of each other, too.
TEST(Fingerprint, EveryBitOfAnIdMovesHalfTheBitsOfEachSum) {
  constexpr int kIds = 20'000;
  for (int bit = 0; bit < 63; ++bit) {
    double first = 0, second = 0, both = 0;
    for (std::int64_t id = 0; id < kIds; ++id) {
      const Fingerprint a = of({id}), b = of({id ^ std::int64_t{1} << bit});
      first += __builtin_popcountll(a.first ^ b.first);
      second += __builtin_popcountll(a.second ^ b.second);
      both += __builtin_popcountll((a.first ^ b.first) ^ (a.second ^ b.second));
    }
    // 32 of 64 bits, with a standard deviation of 4 / sqrt(20000) = 0.03 for the mean.
    for (double mean : {first / kIds, second / kIds, both / kIds}) EXPECT_NEAR(mean, 32, 0.3) << "bit " << bit;
  }
}

std::vector<std::int32_t> counts(const Coverage& coverage) {
  std::vector<std::int32_t> out(coverage.num_ids());
  coverage.counts(0, out.size(), out.data());
  return out;
}

TEST(Coverage, CountsWhatAnArrayCounts) {
  std::mt19937_64 random(2);
  for (std::uint64_t num_ids : {1, 63, 64, 65, 1000}) {
    Coverage coverage(num_ids);
    std::vector<std::int32_t> wanted(num_ids);
    for (int call = 0; call < 40; ++call) {
      std::vector<std::int64_t> ids(random() % 90);
      for (auto& id : ids) {
        id = static_cast<std::int64_t>(random() % num_ids);
        ++wanted[static_cast<std::size_t>(id)];
      }
      coverage.add(ids.data(), ids.size());
    }
    EXPECT_EQ(counts(coverage), wanted) << num_ids;
    std::vector<std::int32_t> part(num_ids / 2);
    coverage.counts(num_ids - part.size(), part.size(), part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), wanted.end() - static_cast<std::ptrdiff_t>(part.size())));
  }
}

TEST(Coverage, AddsCountsAndStaysAtTheHighest) {
  const std::vector<std::int32_t> given = {0, 1, 2, 3, 77, INT32_MAX, INT32_MAX - 1};
  Coverage coverage(300);
  coverage.add_counts(100, given.data(), given.size());
  coverage.add_counts(100, given.data(), 5);
  const std::int64_t highest[] = {105, 105, 106, 106, 106};
  coverage.add(highest, 5);
  std::vector<std::int32_t> got(8);
  coverage.counts(99, got.size(), got.data());
  EXPECT_EQ(got, (std::vector<std::int32_t>{0, 0, 2, 4, 6, 154, INT32_MAX, INT32_MAX}));
}

TEST(Coverage, GoesThroughBytes) {
  for (std::uint64_t num_ids : {1, 64, 130}) {
    Coverage coverage(num_ids);
    const auto last = static_cast<std::int64_t>(num_ids) - 1;
    const std::int64_t ids[] = {0, last, last, last, last, last};
    coverage.add(ids, 6);
    std::vector<unsigned char> bytes(coverage.num_bytes());
    coverage.to_bytes(bytes.data());
    Coverage other(num_ids);
    ASSERT_TRUE(other.from_bytes(bytes.data(), bytes.size()));
    EXPECT_EQ(counts(other), counts(coverage));
    EXPECT_FALSE(other.from_bytes(bytes.data(), bytes.size() - 1));
    EXPECT_FALSE(other.from_bytes(bytes.data(), 0));
    if (num_ids % 64) {
      bytes.back() |= 0x80;  // an id beyond
      EXPECT_FALSE(other.from_bytes(bytes.data(), bytes.size()));
    }
    EXPECT_EQ(counts(other), counts(coverage));
  }
}

TEST(Coverage, HoldsABitAnIdUntilOneComesTwice) {
  Coverage coverage(1000);
  std::vector<std::int64_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  coverage.add(ids.data(), ids.size());
  EXPECT_EQ(coverage.num_bytes(), 128u);
  coverage.add(ids.data(), ids.size());
  EXPECT_EQ(coverage.num_bytes(), 256u);
}

}  // namespace
}  // namespace fastshard
