// A few threads that go through the same rounds together. They live no longer than the call that starts them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fastshard {

class Team {
 public:
  // Calls work() in up to `threads` threads, of which the caller is one; returns when all of them are done. There are
  // fewer if the system has no more to give. work() must not throw.
  template <class Work>
  void run(unsigned threads, Work work) {
    std::vector<std::thread> helpers;
    helpers.reserve(threads - 1);
    {
      // Nobody begins before the size is known.
      std::lock_guard<std::mutex> lock(mutex_);
      try {
        while (helpers.size() + 1 < threads) {
          helpers.emplace_back([&] {
            mutex_.lock();
            mutex_.unlock();
            work();
          });
        }
      } catch (const std::exception&) {
      }
      size_ = static_cast<unsigned>(helpers.size()) + 1;
    }
    work();
    for (auto& helper : helpers) helper.join();
  }

  // A round, which every thread has to enter: each takes tasks of 0 .. tasks - 1 until there are none; when all are
  // done one thread calls finish(), and only then any returns.
  template <class Task, class Finish>
  void round(std::uint64_t tasks, Task task, Finish finish) {
    for (std::uint64_t k; (k = taken_.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(k);
    std::unique_lock<std::mutex> lock(mutex_);
    if (++arrived_ == size_) {
      finish();
      taken_.store(0, std::memory_order_relaxed);
      arrived_ = 0;
      ++rounds_;
      all_arrived_.notify_all();
    } else {
      all_arrived_.wait(lock, [this, round = rounds_] { return rounds_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  std::atomic<std::uint64_t> taken_{0};
  std::uint64_t rounds_ = 0;
  unsigned size_ = 0, arrived_ = 0;
};

}  // namespace fastshard
