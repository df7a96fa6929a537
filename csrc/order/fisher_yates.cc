#include "order/fisher_yates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "order/mt19937.h"

namespace fastshard {
namespace {

// torch changes its rule at UINT32_MAX / 20 samples, where a 32-bit draw modulo n would become visibly uneven.
constexpr std::uint64_t kWideDrawsFrom = 0xFFFFFFFFu / 20;

// How many swaps ahead the target is computed and its cache line requested. Enough to cover a memory access, few
// enough for the lines to be still in the first-level cache when their turn comes; a power of two.
constexpr std::uint64_t kAhead = 64;

// Swaps between two looks at `cancelled`: about a millisecond.
constexpr std::uint64_t kRun = 1 << 16;

// Calls use(i, target(i)) for i = 0 .. count - 1 in order, each target known and prefetched kAhead turns before.
// Returns false if it was cancelled.
template <class Entry, class Target, class Use>
bool run_ahead(const Entry* entries, std::uint64_t count, const std::atomic<bool>& cancelled, Target target, Use use) {
  std::array<std::uint64_t, kAhead> ring;
  const auto request = [&](std::uint64_t i) {
    const std::uint64_t t = target(i);
    __builtin_prefetch(entries + t, 1);
    ring[i % kAhead] = t;
  };
  const std::uint64_t lead = std::min(count, kAhead);
  for (std::uint64_t i = 0; i < lead; ++i) request(i);
  for (std::uint64_t start = 0; start < count - lead; start += kRun) {
    if (cancelled.load(std::memory_order_relaxed)) return false;
    const std::uint64_t stop = std::min(start + kRun, count - lead);
    for (std::uint64_t i = start; i < stop; ++i) {
      use(i, ring[i % kAhead]);
      request(i + kAhead);
    }
  }
  for (std::uint64_t i = count - lead; i < count; ++i) use(i, ring[i % kAhead]);
  return true;
}

// n below kWideDrawsFrom: swap entry i with a later one, or itself.
template <class Entry>
bool shuffle_forward(Entry* entries, std::uint32_t n, Mt19937& random, const std::atomic<bool>& cancelled) {
  for (std::uint32_t i = 0; i < n; ++i) entries[i] = i;
  return run_ahead(
      entries, n - 1, cancelled,
      [&](std::uint64_t i) {
        const auto at = static_cast<std::uint32_t>(i);
        return std::uint64_t{at + random.next() % (n - at)};
      },
      [&](std::uint64_t i, std::uint64_t target) { std::swap(entries[i], entries[target]); });
}

// From kWideDrawsFrom on: insert i at an earlier place, whose entry moves to the end. Two draws make 64 bits, the first
// one the high half.
template <class Entry>
bool shuffle_inside_out(Entry* entries, std::uint64_t n, Mt19937& random, const std::atomic<bool>& cancelled) {
  return run_ahead(
      entries, n, cancelled,
      [&](std::uint64_t i) {
        const std::uint64_t high = random.next();
        return (high << 32 | random.next()) % (i + 1);
      },
      [&](std::uint64_t i, std::uint64_t target) {
        // When target == i the entry is not yet written, and both assignments store i.
        entries[i] = static_cast<Entry>(target == i ? i : entries[target]);
        entries[target] = static_cast<Entry>(i);
      });
}

template <class Entry>
bool shuffle(Entry* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled) {
  Mt19937 random(static_cast<std::uint32_t>(seed));
  if (n < kWideDrawsFrom) return shuffle_forward(entries, static_cast<std::uint32_t>(n), random, cancelled);
  return shuffle_inside_out(entries, n, random, cancelled);
}

}  // namespace

bool torch_randperm(std::uint32_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled) {
  return shuffle(entries, n, seed, cancelled);
}

bool torch_randperm(std::uint64_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled) {
  return shuffle(entries, n, seed, cancelled);
}

}  // namespace fastshard
