// One epoch of torch's order: made, or got from the process of this machine that makes it, by a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#include "order/machine_copy.h"

namespace fastshard {

// Entries take 4 bytes below 2^32 samples, 8 from there on.
class TorchEpoch {
 public:
  // Below, an epoch is made in milliseconds and 4 MB, for which neither a thread nor sharing pays.
  static constexpr std::uint64_t kSharedFrom = std::uint64_t{1} << 20;

  // Begins to make torch.randperm(n) for manual_seed(seed), with up to `threads` threads. A small one is done on
  // return. Throws OutOfMemory if a small one does not fit.
  TorchEpoch(std::uint64_t n, std::uint64_t seed, unsigned threads);
  ~TorchEpoch();
  TorchEpoch(const TorchEpoch&) = delete;
  TorchEpoch& operator=(const TorchEpoch&) = delete;

  // Whether it is there, after waiting for that at most so long. Throws OutOfMemory if it does not fit.
  bool wait(std::chrono::milliseconds longest) const;

  // False in a child that was forked since: its thread and its copy are the parent's. False also if it did not fit, for
  // then another try may find the memory that this one did not.
  bool usable() const;

  // Once wait() is true: calls use(entries), a pointer to 32-bit or to 64-bit ones.
  template <class Use>
  auto read(Use use) const {
    const auto typed = [&](const void* entries) {
      return n_ < kNarrowBelow ? use(static_cast<const std::uint32_t*>(entries))
                               : use(static_cast<const std::uint64_t*>(entries));
    };
    return small_ ? typed(small_->as<void>()) : copy_->read(typed);
  }

 private:
  static constexpr std::uint64_t kNarrowBelow = std::uint64_t{1} << 32;

  enum class State { kRunning, kDone, kFailed };

  std::uint64_t width() const { return n_ < kNarrowBelow ? 4 : 8; }
  bool make(void* memory);
  void run();

  const std::uint64_t n_, seed_, generation_;
  const unsigned threads_;
  std::atomic<bool> cancelled_{false};
  std::atomic<State> state_{State::kRunning};
  std::exception_ptr error_;
  std::unique_ptr<HugeBuffer> small_;
  std::unique_ptr<MachineCopy> copy_;
  std::thread thread_;
};

}  // namespace fastshard
