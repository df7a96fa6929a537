#include "order/mixed.h"

#include <algorithm>
#include <numeric>

namespace fastshard {
namespace {

constexpr std::uint64_t kSlots = std::uint64_t{1} << 15;
constexpr std::uint32_t kSpan = 256;  // or somewhat above half of it, if periods are shorter

// What the words are for, so that no two uses share any: slot t of all spans has word t, slot t of the last part word
// t, and the i-th span of the epoch, which says which one it takes, word i.
enum Use : std::uint64_t { kSlotsOfSpans = 0, kSlotsOfRest = 1, kPick = 2 };

}  // namespace

Mixture::Mixture(std::vector<std::uint32_t> shares, std::uint64_t seed, std::uint64_t num_samples)
    : seed_(seed),
      shares_(std::move(shares)),
      period_(std::accumulate(shares_.begin(), shares_.end(), 0u)),
      periods_(std::max(1u, kSpan / period_)),
      whole_(num_samples / period_ * period_),
      number_(0),
      rest_(static_cast<std::uint32_t>(num_samples % period_)),
      in_rest_(earliest_deadline_counts(shares_, rest_)) {
  const std::uint64_t span = std::uint64_t{period_} * periods_;
  if (whole_) number_ = std::min((whole_ - 1) / span + 1, std::max<std::uint64_t>(1, kSlots / span));
}

std::vector<std::uint64_t> Mixture::counts() const {
  std::vector<std::uint64_t> counts(in_rest_.begin(), in_rest_.end());
  for (std::size_t s = 0; s < counts.size(); ++s) counts[s] += whole_ / period_ * shares_[s];
  return counts;
}

std::shared_ptr<const Mixture::Patterns> Mixture::patterns(std::uint64_t epoch) const {
  return cache_.get(epoch, [&] {
    auto made = std::make_shared<Patterns>();
    made->spans.resize(number_ * periods_ * period_);
    made->rest.resize(rest_);
    if (number_) {
      PhiloxWords words({seed_, kMixedVersion}, epoch, kSlotsOfSpans);
      Interleaver periods(shares_, period_, shares_, number_ * periods_);
      for (std::uint64_t i = 0, first = 0; i < number_ * periods_; ++i, first += period_) {
        periods.make(words, first, static_cast<std::uint32_t>(i % periods_), made->spans.data() + first);
      }
    }
    if (rest_) {
      PhiloxWords words({seed_, kMixedVersion}, epoch, kSlotsOfRest);
      Interleaver(shares_, rest_, in_rest_, 1).make(words, 0, 0, made->rest.data());
    }
    return made;
  });
}

void Mixture::split(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* where,
                    std::uint64_t* draws, std::int64_t* ends) const {
  const auto patterns = this->patterns(epoch);
  PhiloxWords picks({seed_, kMixedVersion}, epoch, kPick);
  std::vector<std::uint16_t> sources(count);
  std::vector<std::uint64_t> found(count);
  std::vector<std::int64_t> next(shares_.size() + 1);
  // The span that the last position was in, or the rest: positions that follow each other need no division.
  const std::uint64_t span = std::uint64_t{period_} * periods_;
  std::uint64_t begin = 0, length = 0, earlier = 0;  // earlier: whole periods before
  const Slot* slots = nullptr;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (positions[i] - begin >= length) {  // below the begin it has wrapped
      if (positions[i] < whole_) {
        const std::uint64_t number = positions[i] / span;
        begin = number * span;
        length = std::min(span, whole_ - begin);
        const auto pick = static_cast<unsigned __int128>(picks.at(number)) * number_;
        slots = patterns->spans.data() + static_cast<std::uint64_t>(pick >> 64) * span;
      } else {
        begin = whole_;
        length = rest_;
        slots = patterns->rest.data();
      }
      earlier = begin / period_;
    }
    const Slot slot = slots[positions[i] - begin];
    const std::uint32_t source = source_of(slot);
    sources[i] = static_cast<std::uint16_t>(source);
    found[i] = earlier * shares_[source] + before_of(slot);
    ++next[source + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (std::size_t s = 0; s < shares_.size(); ++s) ends[s] = next[s + 1];
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(next[sources[i]]++);
    where[at] = static_cast<std::int64_t>(i);
    draws[at] = found[i];
  }
}

}  // namespace fastshard
