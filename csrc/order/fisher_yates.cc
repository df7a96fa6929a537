#include "order/fisher_yates.h"

#include <new>

#include "order/parallel_chain.h"
#include "order/swap_chain.h"

namespace fastshard {
namespace {

// torch changes its rule at UINT32_MAX / 20 samples, where a 32-bit draw modulo n would become visibly uneven.
constexpr std::uint64_t kWideDrawsFrom = 0xFFFFFFFFu / 20;

template <class Entry>
bool randperm(Entry* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled,
              unsigned threads) {
  try {
    if (n < kWideDrawsFrom) return shuffle(ForwardChain(n, seed), entries, n, Windows(), threads, cancelled);
    return shuffle(InsideOutChain(n, seed), entries, n, Windows(), threads, cancelled);
  } catch (const std::bad_alloc&) {
    // The few megabytes that threads work with were not to be had. One thread needs none.
    return randperm(entries, n, seed, cancelled, 1);
  }
}

}  // namespace

bool torch_randperm(std::uint32_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled,
                    unsigned threads) {
  return randperm(entries, n, seed, cancelled, threads);
}

bool torch_randperm(std::uint64_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled,
                    unsigned threads) {
  return randperm(entries, n, seed, cancelled, threads);
}

}  // namespace fastshard
