// Compiled without contracting a * b + c into one rounding, so that keys are the same to the bit on every platform.
#include "order/weighted.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "order/philox.h"

namespace fastshard {
namespace {

// What the words are for, so that no two uses share any.
enum Use : std::uint64_t { kDraws = 0, kSubset = 1 };

// -log(u) for u = (word / 2^12 + 1/2) / 2^52, from operations that IEEE 754 rounds exactly: ranks that ran different
// maths libraries would otherwise sort differently. With u = m * 2^e, m around 1 and f = (m - 1) / (m + 1), log(m) is
// 2 * (f + f^3/3 + f^5/5 + ...); |f| < 0.172, so eleven terms leave less than 2^-58 of the sum.
double exponential(std::uint64_t word) {
  constexpr double kLog2 = 0.693147180559945309417, kRootHalf = 0.707106781186547524401;
  int e;
  double m = std::frexp((static_cast<double>(word >> 12) + 0.5) * 0x1p-52, &e);
  if (m < kRootHalf) {
    m *= 2;
    --e;
  }
  const double f = (m - 1) / (m + 1), square = f * f;
  double series = 0;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
  return -(e * kLog2 + 2 * f * series);
}

// The bits of exponential / weight, with room for one more bit of exponent: whatever the weights, no key overflows or
// underflows, and keys compare as the quotients do. weight is finite and above zero.
std::uint64_t race_key(double exponential, double weight) {
  int e;
  const double quotient = exponential / std::frexp(weight, &e);  // in [2^-53, 2^7), so a normal number
  std::uint64_t bits;
  static_assert(sizeof(bits) == sizeof(quotient), "a double of 64 bits");
  std::memcpy(&bits, &quotient, sizeof(bits));
  return bits + (static_cast<std::uint64_t>(1100 - e) << 52);  // e is in (-1074, 1024]
}

struct Candidate {
  std::uint64_t key, sample;
  bool operator<(const Candidate& other) const {
    return key != other.key ? key < other.key : sample < other.sample;  // ties are too rare to matter, but must be one
  }
};

}  // namespace

template <class Alias>
template <class At>
void WeightedDraws<Alias>::draw(std::uint64_t epoch, At position, std::uint64_t total, std::int64_t* out) const {
  // A large table is out of cache, so the columns of a group are requested before the first one is read.
  constexpr std::uint64_t kGroup = 32;
  PhiloxWords words({seed_, kWeightedVersion}, epoch, kDraws);
  std::uint64_t group[kGroup];
  for (std::uint64_t done = 0; done < total; done += kGroup) {
    const std::uint64_t count = std::min(kGroup, total - done);
    for (std::uint64_t i = 0; i < count; ++i) {
      group[i] = words.at(position(done + i));
      __builtin_prefetch(table_.address(table_.column_of(group[i])));
    }
    for (std::uint64_t i = 0; i < count; ++i) out[done + i] = static_cast<std::int64_t>(table_.draw(group[i]));
  }
}

template <class Alias>
void WeightedDraws<Alias>::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  const auto at = [positions](std::uint64_t i) { return positions.start + i * positions.step; };
  draw(epoch, at, positions.count, out);
}

template <class Alias>
void WeightedDraws<Alias>::take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count,
                                std::int64_t* out) const {
  draw(epoch, [positions](std::uint64_t i) { return positions[i]; }, count, out);
}

WeightedSubset::Samples WeightedSubset::draw(std::uint64_t epoch) const {
  // Few draws of many need little room: whenever the candidates are twice as many as the draws, the worse half goes,
  // and whatever is worse than the rest need not be kept from then on.
  const std::uint64_t room = std::min<std::uint64_t>(weights_.size(), 2 * count_);
  std::vector<Candidate> best;
  best.reserve(room);
  const auto keep = static_cast<std::ptrdiff_t>(count_);
  std::uint64_t worst = std::numeric_limits<std::uint64_t>::max();
  PhiloxWords words({seed_, kWeightedVersion}, epoch, kSubset);
  for (std::uint64_t i = 0; i < weights_.size(); ++i) {
    if (!(weights_[i] > 0)) continue;
    const std::uint64_t key = race_key(exponential(words.at(i)), weights_[i]);
    if (key > worst) continue;
    if (best.size() == room) {
      std::nth_element(best.begin(), best.begin() + keep - 1, best.end());
      best.resize(count_);
      worst = best.back().key;
      if (key > worst) continue;
    }
    best.push_back({key, i});
  }
  if (best.size() > count_) std::nth_element(best.begin(), best.begin() + keep - 1, best.end());
  std::sort(best.begin(), best.begin() + keep);
  Samples samples(count_);
  std::transform(best.begin(), best.begin() + keep, samples.begin(), [](const Candidate& c) { return c.sample; });
  return samples;
}

std::shared_ptr<const WeightedSubset::Samples> WeightedSubset::samples(std::uint64_t epoch) const {
  return cache_.get(epoch, [&] { return std::make_shared<Samples>(draw(epoch)); });
}

void WeightedSubset::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  const auto samples = this->samples(epoch);
  for (std::uint64_t i = 0; i < positions.count; ++i) {
    out[i] = static_cast<std::int64_t>((*samples)[positions.start + i * positions.step]);
  }
}

void WeightedSubset::take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count,
                          std::int64_t* out) const {
  const auto samples = this->samples(epoch);
  for (std::uint64_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>((*samples)[positions[i]]);
}

template class WeightedDraws<std::uint32_t>;
template class WeightedDraws<std::uint64_t>;

}  // namespace fastshard
