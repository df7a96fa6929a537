// Mixtures without Python: shares at every prefix, counts that do not depend on the epoch, any position on its own.
#include "order/mixed.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace fastshard {
namespace {

struct Parts {
  std::vector<std::int64_t> where, ends;
  std::vector<std::uint64_t> draws;

  bool operator==(const Parts& other) const {
    return where == other.where && ends == other.ends && draws == other.draws;
  }
};

Parts split(const Mixture& mixture, std::uint64_t epoch, const std::vector<std::uint64_t>& positions) {
  Parts parts;
  parts.where.resize(positions.size());
  parts.draws.resize(positions.size());
  parts.ends.resize(mixture.num_sources());
  mixture.split(epoch, positions.data(), positions.size(), parts.where.data(), parts.draws.data(), parts.ends.data());
  return parts;
}

std::vector<std::uint64_t> run(std::uint64_t start, std::uint64_t count) {
  std::vector<std::uint64_t> positions(count);
  std::iota(positions.begin(), positions.end(), start);
  return positions;
}

TEST(Mixture, IsWithinOneOfItsShareAtEveryPrefix) {
  const std::vector<std::vector<std::uint32_t>> mixes = {{1},        {1, 1},          {3, 1},   {5, 3, 2},
                                                         {30, 1, 1}, {8, 4, 2, 1, 1}, {999, 1}, {40000, 7, 500, 7001}};
  for (const auto& shares : mixes) {
    const std::uint64_t period = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    for (std::uint64_t n : {std::uint64_t{1}, std::uint64_t{100}, std::uint64_t{5000}, 2 * period + period / 3}) {
      const Mixture mixture(shares, 1, n);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const Parts parts = split(mixture, epoch, run(0, n));
        std::int64_t begin = 0;
        for (std::size_t s = 0; s < shares.size(); begin = parts.ends[s], ++s) {
          ASSERT_EQ(static_cast<std::uint64_t>(parts.ends[s] - begin), mixture.counts()[s]);
          for (std::int64_t i = begin; i < parts.ends[s]; ++i) {
            // Before its j-th draw, at position p, there are j in p positions, and j + 1 in p + 1.
            const auto j = static_cast<std::uint64_t>(i - begin);
            const auto p = static_cast<std::uint64_t>(parts.where[static_cast<std::size_t>(i)]);
            ASSERT_EQ(parts.draws[static_cast<std::size_t>(i)], j);
            ASSERT_LT(j * period, (p + 1) * shares[s]);
            ASSERT_LT(p * shares[s], (j + 1) * period);
          }
        }
      }
    }
  }
}

TEST(Mixture, LargePeriodsAreMadeInTheTimeOfTheirSlots) {
  // A source that waits for a million slots must not make each of them look a million ahead.
  const Mixture mixture({kMaxPeriod - 2, 1, 1}, 1, kMaxPeriod);
  const Parts parts = split(mixture, 0, run(0, kMaxPeriod));
  EXPECT_EQ(parts.ends, (std::vector<std::int64_t>{kMaxPeriod - 2, kMaxPeriod - 1, kMaxPeriod}));
}

TEST(Mixture, AnyPositionIsKnownOnItsOwnUpTo63Bits) {
  const std::uint64_t last = (std::uint64_t{1} << 63) - 2;
  const Mixture mixture({5, 3, 2}, 7, last + 1);
  const Parts together = split(mixture, 3, {last, 0, last - 1, last});
  EXPECT_EQ(together.ends.back(), 4);
  const std::vector<std::uint64_t> counts = mixture.counts();
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}), last + 1);
  const Parts alone = split(mixture, 3, {last});
  for (std::size_t s = 0; s < 3; ++s) {
    const bool here = alone.ends[s] == 1 && (s == 0 || alone.ends[s - 1] == 0);
    if (here) {
      EXPECT_EQ(alone.draws[0] + 1, counts[s]);
    }
  }
}

TEST(Mixture, ThreadsOnDifferentEpochsGetTheirOwn) {
  const Mixture shared({5, 3, 2}, 4, 10007);
  std::vector<Parts> found(8);
  std::vector<std::thread> threads;
  for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
    threads.emplace_back([&, epoch] {
      for (int i = 0; i < 5; ++i) found[epoch] = split(shared, epoch, run(0, 10007));
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
    EXPECT_TRUE(found[epoch] == split(Mixture({5, 3, 2}, 4, 10007), epoch, run(0, 10007)));
  }
}

}  // namespace
}  // namespace fastshard
