#include "order/torch_permutation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "order/mt19937.h"

namespace fastshard {
namespace {

// torch changes its rule at UINT32_MAX / 20 samples, where a 32-bit draw modulo n would become visibly uneven.
constexpr std::uint64_t kWideDrawsFrom = 0xFFFFFFFFu / 20;
constexpr std::uint64_t kNarrowEntriesBelow = std::uint64_t{1} << 32;

// How many swaps ahead the target is computed and its cache line requested. Enough to cover a memory access, few
// enough for the lines to be still in the first-level cache when their turn comes; a power of two.
constexpr std::uint64_t kAhead = 64;

// Calls use(i, target(i)) for i = 0 .. count - 1 in order, each target known and prefetched kAhead turns before.
template <class Entry, class Target, class Use>
void run_ahead(const Entry* entries, std::uint64_t count, Target target, Use use) {
  std::array<std::uint64_t, kAhead> ring;
  const auto request = [&](std::uint64_t i) {
    const std::uint64_t t = target(i);
    __builtin_prefetch(entries + t, 1);
    ring[i % kAhead] = t;
  };
  const std::uint64_t lead = count < kAhead ? count : kAhead;
  for (std::uint64_t i = 0; i < lead; ++i) request(i);
  for (std::uint64_t i = 0; i + lead < count; ++i) {
    use(i, ring[i % kAhead]);
    request(i + kAhead);
  }
  for (std::uint64_t i = count - lead; i < count; ++i) use(i, ring[i % kAhead]);
}

// n below kWideDrawsFrom: swap entry i with a later one, or itself.
void shuffle_forward(std::uint32_t* entries, std::uint32_t n, Mt19937& random) {
  for (std::uint32_t i = 0; i < n; ++i) entries[i] = i;
  run_ahead(
      entries, n - 1,
      [&](std::uint64_t i) {
        const auto at = static_cast<std::uint32_t>(i);
        return std::uint64_t{at + random.next() % (n - at)};
      },
      [&](std::uint64_t i, std::uint64_t target) { std::swap(entries[i], entries[target]); });
}

// From kWideDrawsFrom on: insert i at an earlier place, whose entry moves to the end. Two draws make 64 bits, the first
// one the high half.
template <class Entry>
void shuffle_inside_out(Entry* entries, std::uint64_t n, Mt19937& random) {
  run_ahead(
      entries, n,
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

void shuffle(HugeBuffer& buffer, std::uint64_t n, std::uint64_t seed) {
  Mt19937 random(static_cast<std::uint32_t>(seed));
  if (n < kWideDrawsFrom) {
    shuffle_forward(buffer.as<std::uint32_t>(), static_cast<std::uint32_t>(n), random);
  } else if (n < kNarrowEntriesBelow) {
    shuffle_inside_out(buffer.as<std::uint32_t>(), n, random);
  } else {
    shuffle_inside_out(buffer.as<std::uint64_t>(), n, random);
  }
}

template <class Entry>
void copy(const Entry* entries, Positions positions, std::int64_t* out) {
  for (std::uint64_t i = 0; i < positions.count; ++i) {
    out[i] = static_cast<std::int64_t>(entries[positions.start + i * positions.step]);
  }
}

template <class Entry>
std::uint64_t find(const Entry* entries, std::uint64_t n, std::uint64_t id) {
  return static_cast<std::uint64_t>(std::find(entries, entries + n, static_cast<Entry>(id)) - entries);
}

}  // namespace

bool TorchShuffled::narrow() const { return n_ < kNarrowEntriesBelow; }

std::shared_ptr<const HugeBuffer> TorchShuffled::entries(std::uint64_t epoch) const {
  return cache_.get(epoch, [&](std::shared_ptr<HugeBuffer> previous) {
    auto made = previous ? std::move(previous) : std::make_shared<HugeBuffer>(n_, narrow() ? 4 : 8);
    shuffle(*made, n_, seed_ + epoch);
    return made;
  });
}

void TorchShuffled::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  const auto buffer = entries(epoch);
  if (narrow()) {
    copy(buffer->as<std::uint32_t>(), positions, out);
  } else {
    copy(buffer->as<std::uint64_t>(), positions, out);
  }
}

std::uint64_t TorchShuffled::position(std::uint64_t epoch, std::uint64_t id) const {
  const auto buffer = entries(epoch);
  return narrow() ? find(buffer->as<std::uint32_t>(), n_, id) : find(buffer->as<std::uint64_t>(), n_, id);
}

}  // namespace fastshard
