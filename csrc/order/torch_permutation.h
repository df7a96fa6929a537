// TorchShuffled: exactly the order that torch.randperm gives on the CPU after manual_seed(seed + epoch), so exactly
// the order of torch's DistributedSampler.
//
// A Fisher-Yates shuffle is a chain of swaps: there is no position without the ones before it. So an epoch's order is
// computed once, at the first call, and kept: 4 bytes a sample below 2^32, 8 from there on.
#pragma once

#include "order/epoch_cache.h"
#include "order/huge_buffer.h"
#include "order/order.h"

namespace fastshard {

class TorchShuffled final : public Bijection {
 public:
  TorchShuffled(std::uint64_t n, std::uint64_t seed) : n_(n), seed_(seed) {}
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  // Looks through the whole epoch's entries, at memory speed: a swap chain can't be run backwards for one id.
  std::uint64_t position(std::uint64_t epoch, std::uint64_t id) const override;

 private:
  bool narrow() const;
  std::shared_ptr<const HugeBuffer> entries(std::uint64_t epoch) const;

  std::uint64_t n_, seed_;
  EpochCache<HugeBuffer> cache_;
};

}  // namespace fastshard
