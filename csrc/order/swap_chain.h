// torch's two chains of swaps, and one thread that goes along them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "order/mt19937.h"

namespace fastshard {

// Swap entry i with a later one, or itself, for i = 0 .. n - 2; n below 2^32, of entries that hold 0 .. n - 1.
class ForwardChain {
 public:
  static constexpr bool kNearFirst = true;

  ForwardChain(std::uint64_t n, std::uint64_t seed) : n_(n), random_(static_cast<std::uint32_t>(seed)) {}

  std::uint64_t swaps() const { return n_ - 1; }

  // To be called for each i in turn.
  std::uint64_t target(std::uint64_t i) {
    // 32 bits, because a division of 64 takes longer.
    const auto choices = static_cast<std::uint32_t>(n_ - i);
    return i + random_.next() % choices;
  }

  // What entries begin .. end - 1 have to hold before the first swap.
  template <class Entry>
  static void prepare(Entry* entries, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) entries[i] = static_cast<Entry>(i);
  }

  template <class Entry>
  static void swap(Entry* entries, std::uint64_t i, std::uint64_t target) {
    std::swap(entries[i], entries[target]);
  }

 private:
  std::uint64_t n_;
  Mt19937 random_;
};

// Put i at an earlier place, or the next, and what was there at the end, for i = 0 .. n - 1. The entries need hold
// nothing before.
class InsideOutChain {
 public:
  static constexpr bool kNearFirst = false;

  InsideOutChain(std::uint64_t n, std::uint64_t seed) : n_(n), random_(static_cast<std::uint32_t>(seed)) {}

  std::uint64_t swaps() const { return n_; }

  // To be called for each i in turn. Two draws make 64 bits, the first one the high half.
  std::uint64_t target(std::uint64_t i) {
    const std::uint64_t high = random_.next();
    return (high << 32 | random_.next()) % (i + 1);
  }

  template <class Entry>
  static void prepare(Entry*, std::uint64_t, std::uint64_t) {}

  template <class Entry>
  static void swap(Entry* entries, std::uint64_t i, std::uint64_t target) {
    // When target == i the entry is not yet written, and both assignments store i.
    entries[i] = static_cast<Entry>(target == i ? i : entries[target]);
    entries[target] = static_cast<Entry>(i);
  }

 private:
  std::uint64_t n_;
  Mt19937 random_;
};

// Swaps, and entries prepared, between two looks at `cancelled`: about a millisecond.
constexpr std::uint64_t kBetweenLooks = 1 << 16;

// How many swaps before its own turn a target's cache line is requested: enough to cover a memory access, few enough
// for the lines to be still in the first-level cache when they are needed. A power of two.
constexpr std::uint64_t kAhead = 64;

// Both return false if they were cancelled.
template <class Chain, class Entry>
bool prepare(Entry* entries, std::uint64_t n, const std::atomic<bool>& cancelled) {
  for (std::uint64_t start = 0; start < n; start += kBetweenLooks) {
    if (cancelled.load(std::memory_order_relaxed)) return false;
    Chain::prepare(entries, start, std::min(start + kBetweenLooks, n));
  }
  return true;
}

// Does the swaps from begin to end.
//
// A copy of the chain that no entry can overlap may be kept in registers: `chain` itself costs a third more.
template <class Entry, class Chain>
bool swap_along(Chain& chain, Entry* entries, std::uint64_t begin, std::uint64_t end,
                const std::atomic<bool>& cancelled) {
  Chain own = chain;
  std::array<std::uint64_t, kAhead> ring;
  const auto request = [&](std::uint64_t i) {
    const std::uint64_t target = own.target(i);
    __builtin_prefetch(entries + target, 1);
    ring[i % kAhead] = target;
  };
  const std::uint64_t lead = std::min(end - begin, kAhead);
  for (std::uint64_t i = begin; i < begin + lead; ++i) request(i);
  for (std::uint64_t start = begin; start < end - lead; start += kBetweenLooks) {
    if (cancelled.load(std::memory_order_relaxed)) return false;
    const std::uint64_t stop = std::min(start + kBetweenLooks, end - lead);
    for (std::uint64_t i = start; i < stop; ++i) {
      Chain::swap(entries, i, ring[i % kAhead]);
      request(i + kAhead);
    }
  }
  for (std::uint64_t i = end - lead; i < end; ++i) Chain::swap(entries, i, ring[i % kAhead]);
  chain = own;
  return true;
}

}  // namespace fastshard
