// TorchShuffled: exactly the order that torch.randperm gives on the CPU after manual_seed(seed + epoch), so exactly
// the order of torch's DistributedSampler.
//
// A Fisher-Yates shuffle is a chain of swaps: there is no position without the ones before it. So an epoch's order is
// computed once, at the first call, and kept, once per machine (machine_copy.h): 4 bytes a sample below 2^32, 8 from
// there on. The next epoch's can be made while this one's is used.
#pragma once

#include "order/fork.h"
#include "order/order.h"
#include "order/torch_epoch.h"

namespace fastshard {

class TorchShuffled final : public Bijection {
 public:
  TorchShuffled(std::uint64_t n, std::uint64_t seed) : n_(n), seed_(seed) {}
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override;
  // Looks through the whole epoch's entries, at memory speed: a swap chain can't be run backwards for one id.
  std::uint64_t position(std::uint64_t epoch, std::uint64_t id) const override;
  void prepare(std::uint64_t epoch) const override;

 private:
  struct Kept {
    std::uint64_t epoch = 0;
    std::shared_ptr<const TorchEpoch> made;
    bool holds(std::uint64_t wanted) const { return made && made->usable() && epoch == wanted; }
  };
  struct Epochs {
    Kept current, next;
  };

  std::shared_ptr<const TorchEpoch> begun(std::uint64_t epoch) const;
  std::shared_ptr<const TorchEpoch> finished(std::uint64_t epoch) const;
  Epochs& epochs(const ForkGuard& guard) const;

  std::uint64_t n_, seed_;
  mutable ForkLock lock_;
  mutable Epochs epochs_;
};

}  // namespace fastshard
