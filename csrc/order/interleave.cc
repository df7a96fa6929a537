#include "order/interleave.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace fastshard {
namespace {

constexpr std::uint64_t kNow = ~std::uint64_t{0};  // the odds of a draw that is due at the end of its slot

}  // namespace

std::vector<std::uint32_t> earliest_deadline_counts(const std::vector<std::uint32_t>& shares, std::uint32_t length) {
  const std::uint64_t period = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  using Next = std::pair<std::uint64_t, std::size_t>;  // a slot or a deadline, and the source: the lower one first
  using Queue = std::priority_queue<Next, std::vector<Next>, std::greater<Next>>;
  Queue waiting, released;
  std::vector<std::uint32_t> counts(shares.size(), 0);
  for (std::size_t s = 0; s < shares.size(); ++s) waiting.push({0, s});
  for (std::uint32_t slot = 0; slot < length; ++slot) {
    for (; !waiting.empty() && waiting.top().first <= slot; waiting.pop()) {
      const std::size_t s = waiting.top().second;
      released.push({((counts[s] + 1) * period - 1) / shares[s] + 1, s});
    }
    const std::size_t s = released.top().second;
    released.pop();
    waiting.push({++counts[s] * period / shares[s], s});
  }
  return counts;
}

void Interleaver::Full::reset(const std::vector<std::uint32_t>& room) {
  room_ = room;
  found_.clear();
  looked_ = 0;
}

void Interleaver::Full::found(std::uint32_t slot) {
  found_.push_back(slot);
  std::push_heap(found_.begin(), found_.end(), std::greater<std::uint32_t>());
}

std::uint32_t Interleaver::Full::after(std::uint32_t slot) {
  while (!found_.empty() && found_.front() <= slot) {
    std::pop_heap(found_.begin(), found_.end(), std::greater<std::uint32_t>());
    found_.pop_back();
  }
  while (found_.empty()) {
    if (++looked_ > slot && room_[looked_] == 0) found(looked_);
  }
  return found_.front();
}

void Interleaver::Full::take(std::uint32_t first, std::uint32_t end) {
  for (std::uint32_t slot = first; slot < end; ++slot) {
    if (--room_[slot] == 0 && slot <= looked_) found(slot);
  }
}

Interleaver::Interleaver(std::vector<std::uint32_t> shares, std::uint32_t length, std::vector<std::uint32_t> counts,
                         std::uint64_t patterns)
    : period_(std::accumulate(shares.begin(), shares.end(), 0u)),
      length_(length),
      shares_(std::move(shares)),
      counts_(std::move(counts)),
      room_(length + 1) {
  // room[D] is D minus the draws due by D, which are floor(D * share / period) of each source.
  for (std::uint32_t slot = 1; slot < length; ++slot) room_[slot] = 1;
  for (const std::uint32_t share : shares_) {
    for (std::uint64_t draw = 1;; ++draw) {
      const std::uint64_t due = (draw * period_ - 1) / share + 1;
      if (due >= length) break;
      --room_[due];
    }
  }
  std::partial_sum(room_.begin(), room_.end() - 1, room_.begin());
  room_[length] = 0;
  if (patterns > 1) had_.resize(std::size_t{length} * shares_.size());
}

std::uint32_t Interleaver::deadline(const Source& source) const {
  const std::uint64_t due = ((std::uint64_t{source.drawn} + 1) * period_ - 1) / source.share + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(due, length_));
}

// 0 if the next draw may not come yet. Up to 2^48 else, so that those of all sources add up to less than 2^64.
std::uint64_t Interleaver::odds(const Source& source, std::uint32_t slot, std::size_t number) const {
  if (source.drawn == source.count) return 0;
  const bool ahead = source.drawn > source.due;
  const std::uint32_t next = source.fraction + source.share;  // at most two periods
  if (ahead && next <= period_) return 0;
  if (source.deadline == slot + 1) return kNow;
  const std::uint64_t chance = ahead ? (std::uint64_t{next - period_} << 24) / source.fraction
                                     : (std::uint64_t{source.share} << 24) / (period_ - source.fraction);
  if (had_.empty()) return chance;
  const auto owed = static_cast<std::int64_t>(made_ * source.share) -
                    static_cast<std::int64_t>(std::uint64_t{had_[slot * shares_.size() + number]} * period_);
  const auto whole = static_cast<std::int64_t>(period_);
  return chance * static_cast<std::uint64_t>(std::clamp(whole + owed, whole / 16 + 1, 16 * whole));
}

// The source of a slot. `full` is the first slot after it that has no room.
std::size_t Interleaver::choose(std::uint32_t slot, std::uint32_t full, PhiloxWords& words, std::uint64_t word) {
  std::uint64_t sum = 0;
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const std::uint64_t odds = this->odds(sources_[s], slot, s);
    if (odds == kNow) return s;
    odds_[s] = sum += sources_[s].deadline <= full ? odds : 0;
  }
  const auto point = static_cast<std::uint64_t>((static_cast<unsigned __int128>(words.at(word)) * sum) >> 64);
  return static_cast<std::size_t>(std::upper_bound(odds_.begin(), odds_.end(), point) - odds_.begin());
}

void Interleaver::make(PhiloxWords& words, std::uint64_t first_word, std::uint32_t earlier, Slot* out) {
  odds_.resize(shares_.size());
  sources_.clear();
  for (std::size_t s = 0; s < shares_.size(); ++s) {
    sources_.push_back({shares_[s], counts_[s], 0, 0, 0, 0});
    sources_[s].deadline = deadline(sources_[s]);
  }
  full_.reset(room_);
  for (std::uint32_t slot = 0; slot < length_; ++slot) {
    const std::size_t s = choose(slot, full_.after(slot), words, first_word + slot);
    Source& chosen = sources_[s];
    out[slot] = static_cast<Slot>((earlier * chosen.share + chosen.drawn) << kSourceBits | s);
    full_.take(slot + 1, chosen.deadline);
    ++chosen.drawn;
    chosen.deadline = deadline(chosen);
    if (!had_.empty()) ++had_[slot * shares_.size() + s];
    for (Source& source : sources_) {
      source.fraction += source.share;
      if (source.fraction >= period_) {
        source.fraction -= period_;
        ++source.due;
      }
    }
  }
  ++made_;
}

}  // namespace fastshard
