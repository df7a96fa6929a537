#include "ledger/fingerprint.h"

namespace fastshard {

void Fingerprint::add(const std::int64_t* ids, std::uint64_t n) {
  std::uint64_t sum1 = 0, sum2 = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const IdHashes hashes = IdHashes::of_spread(static_cast<std::uint64_t>(ids[i]) * IdHashes::kSpread);
    sum1 += hashes.first;
    sum2 += hashes.second;
  }
  *this += {n, sum1, sum2};
}

void Fingerprint::add_range(std::uint64_t start, std::uint64_t stop) {
  std::uint64_t sum1 = 0, sum2 = 0, spread = start * IdHashes::kSpread;
  for (std::uint64_t id = start; id < stop; ++id, spread += IdHashes::kSpread) {
    const IdHashes hashes = IdHashes::of_spread(spread);
    sum1 += hashes.first;
    sum2 += hashes.second;
  }
  if (start < stop) *this += {stop - start, sum1, sum2};
}

}  // namespace fastshard
