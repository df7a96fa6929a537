// Draws by weight: WeightedDraws with replacement, WeightedSubset without.
//
// Randomness is Philox4x64-10 with the key (seed, kWeightedVersion). Word p mod 4 of the block at (epoch, p / 4, 0,
// use) belongs to position p, or without replacement to sample p; so any draw can be had on its own, and four
// neighbours share a block.
#pragma once

#include <vector>

#include "order/alias_table.h"
#include "order/epoch_cache.h"
#include "order/order.h"

namespace fastshard {

// Half of the key, so that no other order shares a stream: "weight/1" in ASCII, the first letter in the highest byte.
// What it gives is frozen: runs resume by it.
constexpr std::uint64_t kWeightedVersion = 0x7765696768742F31;

// Position p holds sample i with probability weights[i] / sum(weights), independently of every other position.
// Holds 12 bytes a weight (16 with 64-bit aliases, needed from 2^32 weights on); an epoch costs nothing.
template <class Alias>
class WeightedDraws final : public Order {
 public:
  WeightedDraws(const double* weights, std::uint64_t n, std::uint64_t seed) : seed_(seed), table_(weights, n) {}
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override;

 private:
  template <class At>
  void draw(std::uint64_t epoch, At position, std::uint64_t total, std::int64_t* out) const;

  std::uint64_t seed_;
  AliasTable<Alias> table_;
};

// What sampling one after the other without putting back gives: the samples with the `count` least -log(u_i) /
// weights[i], u_i uniform, the least first. Computed for a whole epoch at its first request, in one pass over the
// weights and a sort of the draws; then 8 bytes a draw are kept, besides 8 bytes a weight.
// Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97,
// 2006.
class WeightedSubset final : public Order {
 public:
  // count is in [1, number of weights above zero].
  WeightedSubset(const double* weights, std::uint64_t n, std::uint64_t count, std::uint64_t seed)
      : count_(count), seed_(seed), weights_(weights, weights + n) {}
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override;

 private:
  using Samples = std::vector<std::uint64_t>;
  Samples draw(std::uint64_t epoch) const;
  std::shared_ptr<const Samples> samples(std::uint64_t epoch) const;

  std::uint64_t count_, seed_;
  std::vector<double> weights_;
  EpochCache<Samples> cache_;
};

}  // namespace fastshard
