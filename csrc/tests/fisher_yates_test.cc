// torch's order from any number of threads is the order that its rules give, step by step.
#include "order/fisher_yates.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "order/parallel_chain.h"

namespace fastshard {
namespace {

const std::atomic<bool> kNeverCancelled{false};

// The rules as torch has them, in their plainest form; the generator is the standard library's.
template <class Entry>
std::vector<Entry> plain(const ForwardChain&, std::uint64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Entry> entries(n);
  for (std::uint64_t i = 0; i < n; ++i) entries[i] = static_cast<Entry>(i);
  for (std::uint64_t i = 0; i + 1 < n; ++i) std::swap(entries[i], entries[i + random() % (n - i)]);
  return entries;
}

template <class Entry>
std::vector<Entry> plain(const InsideOutChain&, std::uint64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Entry> entries(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t high = random();
    const std::uint64_t target = (high << 32 | random()) % (i + 1);
    entries[i] = entries[target];
    entries[target] = static_cast<Entry>(i);
  }
  return entries;
}

template <class Entry, class Chain>
std::vector<Entry> shuffled(std::uint64_t n, unsigned seed, Windows windows, unsigned threads) {
  std::vector<Entry> entries(n, static_cast<Entry>(~Entry{0}));
  EXPECT_TRUE(shuffle(Chain(n, seed), entries.data(), n, windows, threads, kNeverCancelled));
  return entries;
}

template <class Types>
class SwapChain : public testing::Test {};

template <class E, class C>
struct Both {
  using Entry = E;
  using Chain = C;
};
using EntriesAndChains = testing::Types<Both<std::uint32_t, ForwardChain>, Both<std::uint64_t, ForwardChain>,
                                        Both<std::uint32_t, InsideOutChain>, Both<std::uint64_t, InsideOutChain>>;
TYPED_TEST_SUITE(SwapChain, EntriesAndChains);

TYPED_TEST(SwapChain, IsTheSameCutIntoAnyWindows) {
  using Entry = typename TypeParam::Entry;
  using Chain = typename TypeParam::Chain;
  const Windows cuts[] = {{1, 1, 40}, {1, 7, 1000}, {2, 1, 9}, {8, 2, 16}};
  for (std::uint64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 128, 257}) {
    const auto expected = plain<Entry>(Chain(n, 5), n, 5);
    for (const Windows& windows : cuts) {
      for (unsigned threads : {1, 2, 3}) {
        ASSERT_EQ((shuffled<Entry, Chain>(n, 5, windows, threads)), expected)
            << n << " samples, 1 in " << windows.one_in << ", " << threads << " threads";
      }
    }
  }
}

TYPED_TEST(SwapChain, IsTheSameFromAnyNumberOfThreads) {
  using Entry = typename TypeParam::Entry;
  using Chain = typename TypeParam::Chain;
  const Windows windows{8, 500, 3000};
  for (std::uint64_t n : {4095, 65537}) {
    const auto expected = plain<Entry>(Chain(n, 1), n, 1);
    for (unsigned threads = 1; threads <= 9; ++threads) {
      ASSERT_EQ((shuffled<Entry, Chain>(n, 1, windows, threads)), expected) << n << ", " << threads << " threads";
    }
  }
}

TYPED_TEST(SwapChain, IsTheSameWithTheWindowsThatAreUsed) {
  using Entry = typename TypeParam::Entry;
  using Chain = typename TypeParam::Chain;
  const std::uint64_t n = (1 << 20) + 12345;
  const auto expected = plain<Entry>(Chain(n, 2), n, 2);
  for (unsigned threads : {2, 5}) ASSERT_TRUE((shuffled<Entry, Chain>(n, 2, Windows(), threads)) == expected);
}

TYPED_TEST(SwapChain, StopsBeforeItBeginsIfItIsCancelled) {
  using Chain = typename TypeParam::Chain;
  const std::atomic<bool> cancelled{true};
  std::vector<typename TypeParam::Entry> entries(100000);
  for (unsigned threads : {1, 2, 8}) {
    EXPECT_FALSE(shuffle(Chain(100000, 1), entries.data(), 100000, {8, 500, 3000}, threads, cancelled));
  }
}

TEST(TorchRandperm, StopsWhenItIsCancelledAndCanBeAskedAgain) {
  const std::uint64_t n = (1 << 20) + 1;
  std::vector<std::uint32_t> entries(n);
  for (unsigned threads : {1, 2, 4}) {
    std::atomic<bool> cancelled{false};
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      cancelled = true;
    });
    while (torch_randperm(entries.data(), n, 3, cancelled, threads)) {
    }
    EXPECT_TRUE(cancelled);
    canceller.join();
    EXPECT_TRUE(torch_randperm(entries.data(), n, 3, kNeverCancelled, threads));
    EXPECT_TRUE(entries == plain<std::uint32_t>(ForwardChain(n, 3), n, 3));
  }
}

TEST(TorchRandperm, TakesTheLow32BitsOfTheSeed) {
  std::vector<std::uint32_t> narrow(1000), wide(1000);
  torch_randperm(narrow.data(), 1000, 7, kNeverCancelled);
  torch_randperm(wide.data(), 1000, (std::uint64_t{1} << 32) + 7, kNeverCancelled);
  EXPECT_EQ(narrow, wide);
}

}  // namespace
}  // namespace fastshard
