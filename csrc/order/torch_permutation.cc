#include "order/torch_permutation.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "order/waiting.h"

namespace fastshard {
namespace {

// Half of the cores: the threads meet at every window, where one that has lost its core to somebody else holds up all.
unsigned threads_here() { return std::max(std::thread::hardware_concurrency() / 2, 1u); }

template <class Entry>
void copy(const Entry* entries, Positions positions, std::int64_t* out) {
  for (std::uint64_t i = 0; i < positions.count; ++i) {
    out[i] = static_cast<std::int64_t>(entries[positions.start + i * positions.step]);
  }
}

template <class Entry>
std::uint64_t find(const Entry* entries, std::uint64_t n, std::uint64_t id) {
  return static_cast<std::uint64_t>(std::find(entries, entries + n, static_cast<Entry>(id)) - entries);
}

}  // namespace

TorchShuffled::Epochs& TorchShuffled::epochs(const ForkGuard& guard) const {
  // Whoever was changing them is not in this process, nor will anybody destroy what is half changed.
  if (!guard.whole()) new (&epochs_) Epochs;
  return epochs_;
}

// Holds one epoch, and the next one if it was prepared: one that is asked for replaces the current one.
std::shared_ptr<const TorchEpoch> TorchShuffled::begun(std::uint64_t epoch) const {
  std::shared_ptr<const TorchEpoch> former;  // destroyed after the lock is released: it may have a thread to wait for
  const ForkGuard guard(lock_);
  auto& [current, next] = epochs(guard);
  if (current.holds(epoch)) return current.made;
  former = std::move(current.made);
  if (next.holds(epoch)) {
    current = std::exchange(next, {});
  } else {
    former.reset();  // its memory is needed for the new one
    current = {epoch, std::make_shared<TorchEpoch>(n_, seed_ + epoch, threads_here())};
  }
  return current.made;
}

void TorchShuffled::prepare(std::uint64_t epoch) const {
  if (n_ < TorchEpoch::kSharedFrom) return;  // made when it is needed, which nobody will notice
  const ForkGuard guard(lock_);
  auto& [current, next] = epochs(guard);
  if (current.holds(epoch) || next.holds(epoch)) return;
  next = {};
  try {
    next = {epoch, std::make_shared<TorchEpoch>(n_, seed_ + epoch, 1)};  // training needs the other cores
  } catch (const std::system_error&) {
    // No thread can be started: it was only a hint.
  }
}

// Whoever waits holds what is made, so that a thread that wants another epoch meanwhile does not undo it.
std::shared_ptr<const TorchEpoch> TorchShuffled::finished(std::uint64_t epoch) const {
  auto made = begun(epoch);
  while (!made->wait(std::chrono::milliseconds(50))) {
    if (const auto look_around = while_waiting.load()) look_around();
  }
  return made;
}

void TorchShuffled::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  finished(epoch)->read([&](const auto* entries) { copy(entries, positions, out); });
}

void TorchShuffled::take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count,
                         std::int64_t* out) const {
  finished(epoch)->read([&](const auto* entries) {
    for (std::uint64_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>(entries[positions[i]]);
  });
}

std::uint64_t TorchShuffled::position(std::uint64_t epoch, std::uint64_t id) const {
  return finished(epoch)->read([&](const auto* entries) { return find(entries, n_, id); });
}

}  // namespace fastshard
