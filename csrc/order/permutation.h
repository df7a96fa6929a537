// Shuffled: a keyed pseudo-random bijection of [0, n) for any 1 <= n < 2^63, every position computable on its own.
//
// Up to kTableSize samples it is an exact Fisher-Yates shuffle held in a table of at most 32 KiB, because small Feistel
// networks show defects there; above, the network of feistel.h in 16-bit words while they suffice, else in 32-bit ones.
// All randomness is Philox4x64-10 with key (seed, version) and counter (epoch, n, block, purpose | stream << 8), so
// (seed, epoch) pairs never share numbers: (0, 1) is not (1, 0).
#pragma once

#include <variant>
#include <vector>

#include "order/epoch_cache.h"
#include "order/feistel.h"
#include "order/order.h"

namespace fastshard {

// Part of the key, so that a changed algorithm is a different order. What 1 gives is frozen: runs resume by it.
constexpr std::uint64_t kShuffledVersion = 1;

// One epoch's bijection. Those of one (n, seed, epoch) and another stream, below 2^56, are unrelated: Shuffled is
// stream 0, and orders that are made of many permutations number theirs. The tables of other streams than 0 end sooner,
// because they cost more than the network where few of their ids are asked for.
class Permutation {
 public:
  static constexpr std::uint64_t kTableSize = 16384, kStreamTableSize = 4096;

  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream = 0);
  void fill(Positions positions, std::int64_t* out) const;
  void take(const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const;
  std::uint64_t position(std::uint64_t id) const;

 private:
  using Table = std::vector<std::uint16_t>;
  using Form = std::variant<Table, Network<std::uint16_t>, Network<std::uint32_t>>;
  static Form make(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream);

  Form form_;
};

class Shuffled final : public Bijection {
 public:
  Shuffled(std::uint64_t n, std::uint64_t seed) : n_(n), seed_(seed) {}
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override;
  std::uint64_t position(std::uint64_t epoch, std::uint64_t id) const override;

 private:
  std::shared_ptr<const Permutation> permutation(std::uint64_t epoch) const;

  std::uint64_t n_, seed_;
  EpochCache<Permutation> cache_;
};

}  // namespace fastshard
