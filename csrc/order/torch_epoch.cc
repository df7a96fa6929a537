#include "order/torch_epoch.h"

#include <algorithm>
#include <string>

#include "order/fisher_yates.h"
#include "order/fork.h"

namespace fastshard {

TorchEpoch::TorchEpoch(std::uint64_t n, std::uint64_t seed, unsigned threads)
    : n_(n), seed_(seed), generation_(fork_generation()), threads_(threads) {
  if (n < kSharedFrom) {
    small_ = std::make_unique<HugeBuffer>(n, width());
    make(small_->as<void>());
    state_ = State::kDone;
    return;
  }
  // The seed's high half makes no difference to torch.
  const auto torchs_seed = static_cast<std::uint32_t>(seed);
  copy_ = std::make_unique<MachineCopy>("torch1-" + std::to_string(n) + "-" + std::to_string(torchs_seed), n, width());
  thread_ = std::thread([this] { run(); });
}

TorchEpoch::~TorchEpoch() {
  if (!small_ && generation_ != fork_generation()) {
    // There is no such thread here, and nothing that its std::thread may do about it.
    new std::thread(std::move(thread_));
    return;
  }
  cancelled_ = true;
  if (copy_) copy_->stop();
  if (thread_.joinable()) thread_.join();
}

bool TorchEpoch::usable() const { return small_ || (generation_ == fork_generation() && state_ != State::kFailed); }

bool TorchEpoch::make(void* memory) {
  if (n_ < kNarrowBelow) return torch_randperm(static_cast<std::uint32_t*>(memory), n_, seed_, cancelled_, threads_);
  return torch_randperm(static_cast<std::uint64_t*>(memory), n_, seed_, cancelled_, threads_);
}

void TorchEpoch::run() {
  try {
    const bool made = copy_->get([this](void* memory) { return make(memory); }, cancelled_);
    state_ = made ? State::kDone : State::kFailed;
  } catch (...) {
    error_ = std::current_exception();
    state_ = State::kFailed;
  }
  if (state_ == State::kDone) copy_->serve(cancelled_);
}

bool TorchEpoch::wait(std::chrono::milliseconds longest) const {
  // Looked at again and again: what else there is to wait with can't be trusted after a fork.
  const auto end = std::chrono::steady_clock::now() + longest;
  for (std::chrono::microseconds nap{20}; state_ == State::kRunning;
       nap = std::min(2 * nap, std::chrono::microseconds{1000})) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(nap);
  }
  if (error_) std::rethrow_exception(error_);
  return true;
}

}  // namespace fastshard
