// What os.fork() leaves to the child: the thread that called it, and locks that other threads held, which nobody will
// ever release. Loaders fork their workers whenever they please, so what orders keep must survive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace fastshard {

// Grows by one in the child of every fork. What is tied to threads or mappings of an earlier generation is not here.
std::uint64_t fork_generation();

// Mutual exclusion that a fork can't leave locked: a holder of an earlier generation is a thread that is not here.
class ForkLock {
 public:
  // Returns whether what it guards is whole: false if the holder was left behind by a fork, perhaps in mid-change.
  bool lock();
  void unlock() { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::uint64_t> holder_{0};  // 0, or one more than the holder's generation
};

// Locks for a scope.
class ForkGuard {
 public:
  explicit ForkGuard(ForkLock& lock) : lock_(lock), whole_(lock.lock()) {}
  ~ForkGuard() { lock_.unlock(); }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  bool whole() const { return whole_; }

 private:
  ForkLock& lock_;
  bool whole_;
};

// No thread of this process forks while one lives: for descriptors that no child may get. Only for moments.
class NoFork {
 public:
  NoFork();

 private:
  std::unique_lock<std::mutex> lock_;
};

// Children close this descriptor, which close-on-exec does not do for them. Call both with a NoFork alive.
void close_in_children(int descriptor);
void close_here(int descriptor);

}  // namespace fastshard
