// One copy per machine: processes that share, and makers that die, stop or are left. Not on systems without it.
#include <gtest/gtest.h>

#ifdef __linux__
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "order/machine_copy.h"
#include "order/torch_permutation.h"

namespace fastshard {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCount = 1 << 18;
const std::atomic<bool> kGoOn{false};

std::string unique_name() {
  static int tests = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++tests);
}

bool listed(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

// Entry i becomes i * factor, in four steps, so that there is a middle to be killed in.
MachineCopy::Make slowly(std::uint32_t factor, std::chrono::microseconds step) {
  return [=](void* memory) {
    auto* entries = static_cast<std::uint32_t*>(memory);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (i % (kCount / 4) == 0) std::this_thread::sleep_for(step);
      entries[i] = i * factor;
    }
    return true;
  };
}

bool holds(const MachineCopy& copy, std::uint32_t factor) {
  return copy.read([&](const void* data) {
    const auto* entries = static_cast<const std::uint32_t*>(data);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (entries[i] != i * factor) return false;
    }
    return true;
  });
}

// ThreadSanitizer can't follow a child that starts threads; what threads do to each other is tested without forks.
#if defined(__SANITIZE_THREAD__)
#define FORKS GTEST_SKIP() << "forks"
#else
#define FORKS
#endif

// Runs `job` in a forked process; its exit status is 0 if that returned true.
template <class Job>
pid_t in_child(Job job) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs dies, and its status says so
    _exit(job() ? 0 : 1);
  }
  return child;
}

int status_of(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(MachineCopy, IsMadeOnceAndMappedByTheOthers) {
  FORKS;
  const std::string name = unique_name();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(in_child([&] {
      MachineCopy copy(name, kCount, 4);
      // Everybody would make another one: the right one is whichever came first, and all agree on it.
      const auto mine = static_cast<std::uint32_t>(getpid());
      copy.get(slowly(mine, 5ms), kGoOn);
      std::thread serving([&] { copy.serve(kGoOn); });
      std::this_thread::sleep_for(300ms);
      const auto factor = copy.read([](const void* data) { return static_cast<const std::uint32_t*>(data)[1]; });
      std::ofstream(testing::TempDir() + name + "-" + std::to_string(mine)) << factor;
      const bool right = holds(copy, factor);
      _exit(right ? 0 : 1);
      return true;
    }));
  }
  std::vector<std::uint32_t> factors;
  for (pid_t child : children) {
    EXPECT_EQ(status_of(child), 0);
    const std::string path = testing::TempDir() + name + "-" + std::to_string(child);
    std::uint32_t factor = 0;
    std::ifstream(path) >> factor;
    factors.push_back(factor);
    unlink(path.c_str());
  }
  for (std::uint32_t factor : factors) EXPECT_EQ(factor, factors[0]);
  EXPECT_FALSE(listed(name));
}

TEST(MachineCopy, WhoeverWaitsMakesItWhenTheMakerIsKilledAtAnyPoint) {
  FORKS;
  for (int delay = 0; delay < 60; ++delay) {
    const std::string name = unique_name();
    const auto job = [&](std::chrono::microseconds step) {
      MachineCopy copy(name, kCount, 4);
      if (!copy.get(slowly(3, step), kGoOn)) return false;
      std::thread([&] { copy.serve(kGoOn); }).detach();
      const bool right = holds(copy, 3);
      std::this_thread::sleep_for(5ms);
      _exit(right ? 0 : 1);
      return right;
    };
    const pid_t maker = in_child([&] { return job(1ms); });
    while (delay > 2 && !listed(name) && waitpid(maker, nullptr, WNOHANG) == 0) std::this_thread::sleep_for(100us);
    const pid_t one = in_child([&] { return job(0us); });
    const pid_t other = in_child([&] { return job(0us); });
    std::this_thread::sleep_for(delay * 150us);
    kill(maker, SIGKILL);
    EXPECT_EQ(status_of(one), 0) << delay;
    EXPECT_EQ(status_of(other), 0) << delay;
    waitpid(maker, nullptr, 0);
    EXPECT_FALSE(listed(name)) << delay;
  }
}

TEST(MachineCopy, AChildThatOutlivesItsParentDoesNotKeepTheName) {
  FORKS;
  const std::string name = unique_name();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t maker = in_child([&] {
    MachineCopy copy(name, kCount, 4);
    copy.get(slowly(3, 0us), kGoOn);
    std::thread([&] { copy.serve(kGoOn); }).detach();
    in_child([&] {
      const pid_t self = getpid();  // told by the child, so that it has begun to run
      if (write(ends[1], &self, sizeof(self)) != static_cast<ssize_t>(sizeof(self))) return false;
      std::this_thread::sleep_for(20s);
      return true;
    });
    std::this_thread::sleep_for(20s);
    return true;
  });
  pid_t grandchild = 0;
  ASSERT_EQ(read(ends[0], &grandchild, sizeof(grandchild)), static_cast<ssize_t>(sizeof(grandchild)));
  EXPECT_TRUE(listed(name));
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  EXPECT_FALSE(listed(name));
  MachineCopy copy(name, kCount, 4);
  EXPECT_TRUE(copy.get(slowly(5, 0us), kGoOn));
  EXPECT_TRUE(holds(copy, 5));
  kill(grandchild, SIGKILL);
}

TEST(MachineCopy, AMakerThatIsStoppedIsNotAwaitedForEver) {
  FORKS;
  const std::string name = unique_name();
  const pid_t maker = in_child([&] {
    MachineCopy copy(name, kCount, 4);
    return copy.get(slowly(3, 10s), kGoOn);
  });
  while (!listed(name)) std::this_thread::sleep_for(1ms);
  kill(maker, SIGSTOP);
  setenv("FASTSHARD_SHARE_TIMEOUT", "0.2", 1);
  MachineCopy copy(name, kCount, 4);
  unsetenv("FASTSHARD_SHARE_TIMEOUT");
  EXPECT_TRUE(copy.get(slowly(5, 0us), kGoOn));
  EXPECT_TRUE(holds(copy, 5));
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
}

TEST(MachineCopy, CancellingEndsAWaitAndAService) {
  const std::string name = unique_name();
  std::atomic<bool> cancelled{false};
  MachineCopy maker(name, kCount, 4);
  ASSERT_TRUE(maker.get(slowly(3, 0us), cancelled));
  MachineCopy waiting(name, kCount, 4);  // nobody serves yet
  bool got = true;
  std::thread waiter([&] { got = waiting.get(slowly(3, 0us), cancelled); });
  std::this_thread::sleep_for(50ms);
  cancelled = true;
  waiter.join();
  EXPECT_FALSE(got);
  cancelled = false;
  std::thread server([&] { maker.serve(cancelled); });
  std::this_thread::sleep_for(20ms);
  cancelled = true;
  maker.stop();
  server.join();
}

TEST(MachineCopy, NobodyWaitsForAMakerThatFailedOrWasCancelled) {
  const std::string name = unique_name();
  MachineCopy failed(name, kCount, 4);
  EXPECT_THROW(failed.get([](void*) -> bool { throw OutOfMemory("no"); }, kGoOn), OutOfMemory);
  EXPECT_FALSE(listed(name));
  MachineCopy cancelled(name, kCount, 4);
  EXPECT_FALSE(cancelled.get([](void*) { return false; }, kGoOn));
  EXPECT_FALSE(listed(name));
  MachineCopy next(name, kCount, 4);
  EXPECT_TRUE(next.get(slowly(3, 0us), kGoOn));
}

TEST(MachineCopy, ATimeoutThatIsNoNumberIsAnError) {
  for (const char* wrong : {"", "soon", "-1", "1x", "nan", "1e9"}) {
    setenv("FASTSHARD_SHARE_TIMEOUT", wrong, 1);
    EXPECT_THROW(MachineCopy("unused", kCount, 4), std::invalid_argument) << wrong;
  }
  unsetenv("FASTSHARD_SHARE_TIMEOUT");
}

// An order is used by threads while the process forks; whatever was going on, the child finds the order right.
TEST(TorchShuffled, AChildThatIsForkedAtAnyMomentCanUseIt) {
  FORKS;
  for (const std::uint64_t n : {std::uint64_t{1000}, TorchEpoch::kSharedFrom + 5}) {
    const TorchShuffled order(n, 1);
    std::vector<std::int64_t> expected(100);
    TorchShuffled(n, 1).fill(0, {n - 100, 100, 1}, expected.data());
    std::atomic<bool> stop{false};
    std::thread user([&] {
      std::int64_t out = 0;
      for (std::uint64_t epoch = 0; !stop; ++epoch) order.fill(epoch, {0, 1, 1}, &out);
    });
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(i * 1ms);
      const pid_t child = in_child([&] {
        std::vector<std::int64_t> found(100);
        order.fill(0, {n - 100, 100, 1}, found.data());
        return found == expected;
      });
      EXPECT_EQ(status_of(child), 0) << n << " " << i;
    }
    stop = true;
    user.join();
  }
}

TEST(TorchShuffled, ThreadsThatUseAndPrepareEpochsGetTheirOwn) {
  const std::uint64_t n = TorchEpoch::kSharedFrom;
  const TorchShuffled shared(n, 4);
  std::vector<std::vector<std::int64_t>> found(4, std::vector<std::int64_t>(10));
  std::vector<std::thread> threads;
  for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
    threads.emplace_back([&, epoch] {
      shared.prepare(epoch + 1);
      shared.fill(epoch, {n - 10, 10, 1}, found[epoch].data());
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::uint64_t epoch = 0; epoch < found.size(); ++epoch) {
    std::vector<std::int64_t> expected(10);
    TorchShuffled(n, 4).fill(epoch, {n - 10, 10, 1}, expected.data());
    EXPECT_EQ(found[epoch], expected);
  }
}

}  // namespace
}  // namespace fastshard
#endif
