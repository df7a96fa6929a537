// One copy per machine of what is costly to make: the first process that wants it makes it, the others map it.
//
// There is no file, hence none to be left behind. The copy is a sealed memfd, so whoever maps it can neither change it
// nor pull it away, and it is gone with the last process that has it. Its maker is found through a socket in Linux's
// abstract name space, whose name lives as long as the maker listens: whoever connects waits for the descriptor, and
// learns at once, from the kernel, when the maker dies at whatever point; then one of those who waited makes it.
// Unlike /dev/shm this has no size limit of its own. Who is alone pays nothing: the copy stays in private memory until
// somebody asks. Shared by processes of one user in one network namespace;
// elsewhere, and on systems other than Linux, each process makes its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "order/fork.h"
#include "order/huge_buffer.h"

namespace fastshard {

class MachineCopy {
 public:
  // `name` says all that the contents depend on, in at most 90 characters. FASTSHARD_SHARE_TIMEOUT: how many seconds to
  // wait for a maker, after which this process makes its own; 0 is never to share. Throws std::invalid_argument if
  // that is no such number.
  MachineCopy(std::string name, std::uint64_t count, std::uint64_t width);
  ~MachineCopy();
  MachineCopy(const MachineCopy&) = delete;
  MachineCopy& operator=(const MachineCopy&) = delete;

  // Fills count * width bytes; false if it was cancelled.
  using Make = std::function<bool(void* memory)>;

  // Gets the copy from its maker, or makes it. False if it was cancelled. Throws OutOfMemory.
  bool get(const Make& make, const std::atomic<bool>& cancelled);

  // If this process made it: hands it to everyone who asks, until stop(). Else returns at once. `cancelled` must be
  // true before stop() is called, which another thread does.
  void serve(const std::atomic<bool>& cancelled);
  void stop();

  // Calls use(data). Not for long while nobody has asked for the copy: whoever does waits for it.
  template <class Use>
  auto read(Use use) const {
    if (const void* mapped = mapped_.load(std::memory_order_acquire)) return use(mapped);
    const ForkGuard guard(moving_);
    const void* mapped = mapped_.load(std::memory_order_relaxed);
    return use(mapped ? mapped : own_->as<void>());
  }

 private:
  enum class Found { kCopy, kNobody, kGone, kUnable };

  std::uint64_t bytes() const { return count_ * width_; }  // HugeBuffer has checked that it fits
  bool listen();
  void close_listener();
  Found join(const std::atomic<bool>& cancelled, std::int64_t deadline);
  bool map(int copy);
  bool publish();

  const std::string name_;
  const std::uint64_t count_, width_;
  const std::int64_t timeout_;  // nanoseconds; 0 is not to share
  const std::uint64_t generation_;
  mutable ForkLock moving_;  // held by who reads own_, and while it is moved
  std::unique_ptr<HugeBuffer> own_;
  std::atomic<const void*> mapped_{nullptr};
  int copy_ = -1;  // the memfd, if this process made it
  std::atomic<int> listener_{-1};
};

}  // namespace fastshard
