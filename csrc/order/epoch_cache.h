// Remembers what an order derived for one epoch (keys, a table, a draw), so that the next call finds it.
//
// Holds one epoch at a time. Readers keep theirs alive by the shared_ptr they got, so two iterators on two epochs are
// right, merely slower. Building happens under the lock: threads that want the same epoch wait for one build.
// The caller must not hold Python's GIL, or a builder that needs it would deadlock with a waiter that has it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "order/fork.h"

namespace fastshard {

template <class Derived>
class EpochCache {
 public:
  // Returns what `build()` made for `epoch`.
  template <class Build>
  std::shared_ptr<const Derived> get(std::uint64_t epoch, Build build) const {
    const ForkGuard guard(lock_);
    // Whoever was changing it is not in this process, nor will anybody destroy what is half changed.
    if (!guard.whole()) new (&value_) std::shared_ptr<const Derived>;
    if (!value_ || epoch_ != epoch) {
      value_ = nullptr;
      value_ = build();
      epoch_ = epoch;
    }
    return value_;
  }

 private:
  mutable ForkLock lock_;
  mutable std::shared_ptr<const Derived> value_;
  mutable std::uint64_t epoch_ = 0;
};

}  // namespace fastshard
