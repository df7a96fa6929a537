// A chain of swaps by several threads, with exactly the result of one.
//
// The chain is cut into windows of successive swaps, whose targets are drawn beforehand. A swap is *near* if its target
// is in the window too, and *far* otherwise. Then
//
//   - far swaps with different targets can change places: each touches its own entry of the window and its target;
//   - forward, all near swaps can go first: near swap j touches entries of the window from j on, an earlier far swap i
//     its entry i and one behind the window;
//   - inside out, all near swaps can go last: near swap j touches entries of the window up to j, a later far swap i its
//     entry i, which no swap before it touches, and one in front of the window.
//
// So one thread does the near swaps, which are few, and far ones are divided by ranges of targets: each thread goes
// through the whole window, and does in order those with targets in its range. Meanwhile one of them draws the targets
// of the next window. Threads meet once a window.
//
// What else was judged. Bringing far swaps to their ranges (lists of values and targets, swapped there and brought
// back) spares threads the search, but moves each swap three times more: slower with two threads. It would also allow
// ranges that fit into a cache, but random memory is only left behind with several swaps a cache line and window, so
// with windows of a quarter of the entries and twice the memory. Shun et al., "Sequential random permutation, list
// contraction and tree contraction are highly parallel" (SODA 2015), have no windows: swaps reserve their targets in
// rounds, which go over arrays of the size of the whole chain. MergeShuffle (Bacher et al., 2015) gives another
// permutation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "order/swap_chain.h"
#include "order/team.h"

namespace fastshard {

// How a chain is cut. Nothing of it changes the result.
struct Windows {
  // A window has at most one in this many of the entries that its targets can be in, and half of that share is near.
  std::uint64_t one_in = 32;
  // Where windows would be smaller than this, one thread goes on alone.
  std::uint64_t smallest = 1 << 14;
  // Times the number of threads: large enough for a window to cost more than the threads' meeting. Memory: up to 16
  // bytes a swap, with 64-bit entries 24.
  std::uint64_t largest_per_thread = 1 << 17;
};

template <class Entry, class Chain>
class ParallelChain {
 public:
  // With more, all would wait for the one that draws.
  static constexpr unsigned kMostThreads = 8;

  // `threads` from 1 to kMostThreads. Chain and entries must outlive it.
  ParallelChain(Chain& chain, Entry* entries, std::uint64_t n, Windows windows, unsigned threads,
                const std::atomic<bool>& cancelled)
      : chain_(chain),
        entries_(entries),
        n_(n),
        windows_(windows),
        threads_(threads),
        largest_(std::min(windows.largest_per_thread * threads, n)),
        cancelled_(cancelled) {
    for (Window& window : window_) {
      window.targets.resize(largest_);
      window.near.reserve(largest_);
    }
  }

  // Prepares the entries, and does the swaps from `begin` on for which windows are large enough. Returns the swap to go
  // on with, which is an early one if it was cancelled.
  std::uint64_t run(std::uint64_t begin) {
    Team team;
    team.run(threads_, [&] { work(team, begin); });
    return std::max(window_[0].end, window_[1].end);
  }

 private:
  struct Window {
    std::uint64_t begin = 0, end = 0;  // the swaps
    std::vector<Entry> targets;        // of each
    std::vector<std::uint32_t> near;   // which of them are near, counted from begin

    bool empty() const { return begin == end; }
  };

  // What every thread does.
  void work(Team& team, std::uint64_t begin) {
    const std::uint64_t pieces = (n_ + kBetweenLooks - 1) / kBetweenLooks;
    team.round(
        1 + pieces, [&](std::uint64_t k) { k == 0 ? draw(window_[0], begin) : prepare(k - 1); },
        [&] {
          if (Chain::kNearFirst) swap_near(window_[0]);
        });
    for (int turn = 0; !window_[turn].empty(); turn ^= 1) {
      Window &now = window_[turn], &next = window_[turn ^ 1];
      team.round(
          threads_,
          [&](std::uint64_t k) {
            if (k == 0) draw(next, now.end);
            swap_far(now, k);
          },
          [&] { swap_near(Chain::kNearFirst ? next : now); });
    }
  }

  void prepare(std::uint64_t piece) {
    if (cancelled_.load(std::memory_order_relaxed)) return;
    Chain::prepare(entries_, piece * kBetweenLooks, std::min((piece + 1) * kBetweenLooks, n_));
  }

  // How many swaps the window at `begin` has.
  std::uint64_t size(std::uint64_t begin) const {
    const std::uint64_t reach = Chain::kNearFirst ? n_ - begin : begin;
    const std::uint64_t size = std::min({largest_, reach / windows_.one_in, chain_.swaps() - begin});
    return size < windows_.smallest ? 0 : size;
  }

  // Makes the window of the swaps from `begin` on. An empty one ends the work.
  void draw(Window& window, std::uint64_t begin) {
    window.begin = begin;
    window.end = begin + size(begin);
    window.near.clear();
    Chain own = chain_;  // as in swap_along
    Entry* targets = window.targets.data();
    const std::uint64_t count = window.end - begin;
    for (std::uint64_t start = 0; start < count; start += kBetweenLooks) {
      if (cancelled_.load(std::memory_order_relaxed)) {
        window.end = begin;
        window.near.clear();
        return;
      }
      for (std::uint64_t k = start; k < std::min(start + kBetweenLooks, count); ++k) {
        const std::uint64_t target = own.target(begin + k);
        targets[k] = static_cast<Entry>(target);
        if (target - begin < count) window.near.push_back(static_cast<std::uint32_t>(k));
      }
    }
    chain_ = own;
  }

  void swap_near(const Window& window) {
    for (std::uint32_t k : window.near) Chain::swap(entries_, window.begin + k, window.targets[k]);
  }

  // Where in `far` entries the k-th thread's range begins. To draw a window costs about a quarter of its swaps: the
  // first thread, which does, has a smaller range, or from five threads on none.
  std::uint64_t range_begin(std::uint64_t far, std::uint64_t k) const {
    if (k == 0) return 0;
    if (k == threads_) return far;
    const std::uint64_t first = threads_ < 5 ? far / (4 * threads_) * (5 - threads_) : 0;
    return first + (far - first) / (threads_ - 1) * (k - 1);
  }

  // The k-th thread's share of a window.
  void swap_far(const Window& window, std::uint64_t k) {
    const std::uint64_t all_begin = Chain::kNearFirst ? window.end : 0;
    const std::uint64_t all = Chain::kNearFirst ? n_ - window.end : window.begin;
    const std::uint64_t begin = all_begin + range_begin(all, k), end = all_begin + range_begin(all, k + 1);
    if (begin == end) return;
    struct Swap {
      Entry at, target;
    };
    constexpr std::uint64_t kBlock = 2048;
    Swap mine[kBlock + kAhead];
    std::uint64_t found = 0;
    for (std::uint64_t start = window.begin; start < window.end; start += kBlock) {
      if (cancelled_.load(std::memory_order_relaxed)) return;
      const std::uint64_t stop = std::min(start + kBlock, window.end);
      for (std::uint64_t i = start; i < stop; ++i) {
        // Without a branch: which way it went nobody could foretell.
        const Entry target = window.targets[i - window.begin];
        mine[found] = {static_cast<Entry>(i), target};
        found += target - begin < end - begin;
      }
      // The last kAhead have only been requested when the others are done. They wait for the next block.
      std::uint64_t done = 0;
      for (; done + kAhead < found; ++done) {
        __builtin_prefetch(entries_ + mine[done + kAhead].target, 1);
        Chain::swap(entries_, mine[done].at, mine[done].target);
      }
      std::copy(mine + done, mine + found, mine);
      found -= done;
    }
    for (std::uint64_t m = 0; m < found; ++m) Chain::swap(entries_, mine[m].at, mine[m].target);
  }

  Chain& chain_;
  Entry* const entries_;
  const std::uint64_t n_;
  const Windows windows_;
  const unsigned threads_;
  const std::uint64_t largest_;
  Window window_[2];
  const std::atomic<bool>& cancelled_;
};

// A whole chain by up to `threads` threads. Returns false if it was cancelled.
template <class Entry, class Chain>
bool shuffle(Chain chain, Entry* entries, std::uint64_t n, Windows windows, unsigned threads,
             const std::atomic<bool>& cancelled) {
  using Parallel = ParallelChain<Entry, Chain>;
  const std::uint64_t worthwhile = windows.one_in * windows.smallest;
  if (threads < 2 || n < 2 * worthwhile) {
    return prepare<Chain>(entries, n, cancelled) && swap_along(chain, entries, 0, chain.swaps(), cancelled);
  }
  // Inside out, targets are in what is already there.
  const std::uint64_t begin = Chain::kNearFirst ? 0 : worthwhile;
  Parallel parallel(chain, entries, n, windows, std::min(threads, Parallel::kMostThreads), cancelled);
  if (!swap_along(chain, entries, 0, begin, cancelled)) return false;
  const std::uint64_t rest = parallel.run(begin);
  return !cancelled.load() && swap_along(chain, entries, rest, chain.swaps(), cancelled);
}

}  // namespace fastshard
