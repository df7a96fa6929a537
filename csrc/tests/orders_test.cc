// The core without Python: bijections, their inverses, strides, and sizes at the edge of 64 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "order/huge_buffer.h"
#include "order/permutation.h"
#include "order/philox.h"
#include "order/torch_permutation.h"
#include "slice/slice.h"

namespace fastshard {
namespace {

constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

std::vector<std::int64_t> ids(const Order& order, std::uint64_t epoch, Positions positions) {
  std::vector<std::int64_t> out(positions.count);
  order.fill(epoch, positions, out.data());
  return out;
}

TEST(Philox, GivesThePublishedVectors) {
  // Random123's known answers for philox4x64-10: all zeros, all ones.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b}));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0}));
}

TEST(Shuffled, HoldsEveryIdOnceAtAwkwardSizes) {
  for (std::uint64_t n : {1, 2, 3, 16383, 16384, 16385, 65536, 65537, 262145}) {
    auto all = ids(Shuffled(n, 3), 5, {0, n, 1});
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << n;
  }
}

TEST(Shuffled, PositionUndoesFill) {
  for (std::uint64_t n : {std::uint64_t{7}, std::uint64_t{16384}, std::uint64_t{1} << 20, std::uint64_t{4294770690},
                          std::uint64_t{4294770691}, kLargest}) {
    const Shuffled order(n, 1);
    for (std::uint64_t position : {std::uint64_t{0}, n / 3, n / 2, n - 1}) {
      const auto id = static_cast<std::uint64_t>(ids(order, 2, {position, 1, 1})[0]);
      EXPECT_LT(id, n);
      EXPECT_EQ(order.position(2, id), position) << n;
    }
  }
}

TEST(Shuffled, AnyStrideIsAStrideOfTheWhole) {
  const std::uint64_t n = 100003;
  const Shuffled order(n, 9);
  const auto all = ids(order, 0, {0, n, 1});
  for (std::uint64_t step : {1, 2, 7, 63, 64, 65, 1024, 50001, 100002}) {
    const std::uint64_t start = 1, count = (n - start - 1) / step + 1;
    const auto some = ids(order, 0, {start, count, step});
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(some[i], all[start + i * step]) << step;
  }
}

TEST(Shuffled, StridesNearTheEndOf64BitsStayInRange) {
  const Shuffled order(kLargest, 1);
  const auto some = ids(order, 0, {0, 2, kLargest - 1});
  EXPECT_EQ(some[1], ids(order, 0, {kLargest - 1, 1, 1})[0]);
}

TEST(Shuffled, ThreadsOnDifferentEpochsGetTheirOwn) {
  for (std::uint64_t n : {1000, 20000}) {
    const Shuffled shared(n, 4);
    std::vector<std::vector<std::int64_t>> found(8);
    std::vector<std::thread> threads;
    for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
      threads.emplace_back([&, epoch] {
        for (int i = 0; i < 5; ++i) found[epoch] = ids(shared, epoch, {0, n, 1});
      });
    }
    for (auto& thread : threads) thread.join();
    for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
      EXPECT_EQ(found[epoch], ids(Shuffled(n, 4), epoch, {0, n, 1}));
    }
  }
}

TEST(TorchShuffled, GivesTorchsFirstIds) {
  // torch.randperm(10, generator=torch.Generator().manual_seed(0))
  EXPECT_EQ(ids(TorchShuffled(10, 0), 0, {0, 10, 1}), (std::vector<std::int64_t>{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
}

TEST(TorchShuffled, PositionUndoesFill) {
  const TorchShuffled order(1000, 3);
  const auto all = ids(order, 1, {0, 1000, 1});
  for (std::uint64_t p = 0; p < 1000; ++p) ASSERT_EQ(order.position(1, static_cast<std::uint64_t>(all[p])), p);
}

TEST(TorchShuffled, SaysHowMuchItWouldNeed) {
  const TorchShuffled order(std::uint64_t{1} << 45, 0);
  try {
    ids(order, 0, {0, 1, 1});
    FAIL() << "2^48 bytes were had";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(std::uint64_t{1} << 48)), std::string::npos);
  }
}

TEST(Slice, SharesAddUpAtEverySize) {
  for (std::uint64_t length = 1; length < 40; ++length) {
    for (std::uint64_t replicas = 1; replicas < 9; ++replicas) {
      for (Uneven uneven : {Uneven::kPad, Uneven::kDrop, Uneven::kKeep}) {
        std::uint64_t sum = 0, total = 0;
        for (std::uint64_t rank = 0; rank < replicas; ++rank) {
          const SliceShape shape = slice_shape(length, length / 3, rank, replicas, uneven);
          sum += shape.num_samples;
          total = shape.total_size;
        }
        EXPECT_EQ(sum, total);
      }
    }
  }
}

TEST(Slice, DoesNotOverflowAtTheLargestSizes) {
  const SliceShape shape = slice_shape(kLargest, 0, 7, 8, Uneven::kPad);
  EXPECT_EQ(shape.total_size, std::uint64_t{1} << 63);
  EXPECT_EQ(shape.num_samples, std::uint64_t{1} << 60);
  EXPECT_EQ(shape.num_padding, 1u);
}

}  // namespace
}  // namespace fastshard
