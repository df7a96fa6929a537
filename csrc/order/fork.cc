#include "order/fork.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#define FASTSHARD_HAS_FORK 1
#include <pthread.h>
#include <unistd.h>
#endif

namespace fastshard {
namespace {

struct Forks {
  std::atomic<std::uint64_t> generation{0};
  std::mutex mutex;  // held by NoFork, and by a thread that forks
  std::vector<int> closed_in_children;
};

// Never destroyed: threads may outlive the end of main.
Forks& forks() {
  static Forks& forks = *[] {
    auto* made = new Forks;
#ifdef FASTSHARD_HAS_FORK
    pthread_atfork([] { fastshard::forks().mutex.lock(); }, [] { fastshard::forks().mutex.unlock(); },
                   [] {
                     Forks& child = fastshard::forks();
                     child.generation.fetch_add(1, std::memory_order_relaxed);
                     for (int descriptor : child.closed_in_children) close(descriptor);
                     child.closed_in_children.clear();
                     child.mutex.unlock();
                   });
#endif
    return made;
  }();
  return forks;
}

// At load time: a first call in one thread while another forks would leave the child a half-made static.
[[maybe_unused]] const Forks& kMadeAtLoad = forks();

}  // namespace

std::uint64_t fork_generation() { return forks().generation.load(std::memory_order_relaxed); }

bool ForkLock::lock() {
  const std::uint64_t mine = fork_generation() + 1;
  std::chrono::microseconds nap{0};
  for (;;) {
    std::uint64_t holder = 0;
    if (holder_.compare_exchange_strong(holder, mine, std::memory_order_acquire)) return true;
    if (holder != mine && holder_.compare_exchange_strong(holder, mine, std::memory_order_acquire)) return false;
    // Mostly held for nanoseconds, but a table or a draw of millions may be made under it.
    std::this_thread::sleep_for(nap);
    nap = std::min(nap + std::chrono::microseconds{1}, std::chrono::microseconds{500});
  }
}

NoFork::NoFork() : lock_(forks().mutex) {}

void close_in_children(int descriptor) { forks().closed_in_children.push_back(descriptor); }

void close_here(int descriptor) {
  auto& all = forks().closed_in_children;
  all.erase(std::remove(all.begin(), all.end(), descriptor), all.end());
#ifdef FASTSHARD_HAS_FORK
  close(descriptor);
#endif
}

}  // namespace fastshard
