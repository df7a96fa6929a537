#include "order/torch_permutation.h"

#include <algorithm>
#include <utility>

#include "order/fisher_yates.h"

namespace fastshard {
namespace {

constexpr std::uint64_t kNarrowEntriesBelow = std::uint64_t{1} << 32;

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

bool TorchShuffled::narrow() const { return n_ < kNarrowEntriesBelow; }

std::shared_ptr<const HugeBuffer> TorchShuffled::entries(std::uint64_t epoch) const {
  return cache_.get(epoch, [&](std::shared_ptr<HugeBuffer> previous) {
    auto made = previous ? std::move(previous) : std::make_shared<HugeBuffer>(n_, narrow() ? 4 : 8);
    const std::atomic<bool> cancelled{false};
    if (narrow()) {
      torch_randperm(made->as<std::uint32_t>(), n_, seed_ + epoch, cancelled);
    } else {
      torch_randperm(made->as<std::uint64_t>(), n_, seed_ + epoch, cancelled);
    }
    return made;
  });
}

void TorchShuffled::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  const auto buffer = entries(epoch);
  if (narrow()) {
    copy(buffer->as<std::uint32_t>(), positions, out);
  } else {
    copy(buffer->as<std::uint64_t>(), positions, out);
  }
}

std::uint64_t TorchShuffled::position(std::uint64_t epoch, std::uint64_t id) const {
  const auto buffer = entries(epoch);
  return narrow() ? find(buffer->as<std::uint32_t>(), n_, id) : find(buffer->as<std::uint64_t>(), n_, id);
}

}  // namespace fastshard
