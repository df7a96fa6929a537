// Remembers what an order derived for one epoch (keys, a table, a permutation), so that the next call finds it.
//
// Holds one epoch at a time. Readers keep theirs alive by the shared_ptr they got, so two iterators on two epochs are
// right, merely slower. Building happens under the lock: threads that want the same epoch wait for one build.
// The caller must not hold Python's GIL, or a builder that needs it would deadlock with a waiter that has it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace fastshard {

template <class Derived>
class EpochCache {
 public:
  // Returns what `build(reusable)` makes for `epoch`. `reusable` is the previous epoch's value if nobody else holds it,
  // for builders that can use its memory again, else null.
  template <class Build>
  std::shared_ptr<const Derived> get(std::uint64_t epoch, Build build) const {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!value_ || epoch_ != epoch) {
      std::shared_ptr<Derived> previous = std::move(value_);
      value_ = nullptr;
      if (previous.use_count() > 1) previous = nullptr;
      value_ = build(std::move(previous));
      epoch_ = epoch;
    }
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Derived> value_;
  mutable std::uint64_t epoch_ = 0;
};

}  // namespace fastshard
