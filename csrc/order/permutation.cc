#include "order/permutation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "order/philox.h"

namespace fastshard {
namespace {

// What the last counter word's low byte says the numbers are for, so that no two uses share any.
enum Purpose : std::uint64_t { kKeys = 0, kTable = 1 };

// The 64-bit words of Philox blocks 0, 1, 2, ... of one (n, seed, epoch, stream, purpose).
class Words {
 public:
  Words(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream, Purpose purpose)
      : counter_{epoch, n, 0, purpose | stream << 8}, key_{seed, kShuffledVersion} {}

  std::uint64_t next() {
    if (used_ == block_.size()) {
      block_ = philox(counter_, key_);
      ++counter_[2];
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  PhiloxBlock counter_;
  std::array<std::uint64_t, 2> key_;
  PhiloxBlock block_{};
  std::size_t used_ = block_.size();
};

// Uniform numbers below a bound without modulo bias, from 32-bit draws (the low half of a word first).
// Source: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
class BoundedDraws {
 public:
  explicit BoundedDraws(Words words) : words_(words) {}

  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{draw()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{draw()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint32_t draw() {
    high_next_ = !high_next_;
    if (high_next_) word_ = words_.next();
    return static_cast<std::uint32_t>(high_next_ ? word_ : word_ >> 32);
  }

  Words words_;
  std::uint64_t word_ = 0;
  bool high_next_ = false;
};

// The least r with r * r >= n. Corrects the floating-point guess, which is off by one for large n.
std::uint64_t ceil_sqrt(std::uint64_t n) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  const auto square = [](std::uint64_t r) { return static_cast<unsigned __int128>(r) * r; };
  while (square(root) >= n && root > 0) --root;
  while (square(root) < n) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream)
    : form_(make(n, seed, epoch, stream)) {}

Permutation::Form Permutation::make(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream) {
  if (n <= (stream == 0 ? kTableSize : kStreamTableSize)) {
    Table table(n);
    std::iota(table.begin(), table.end(), std::uint16_t{0});
    BoundedDraws draws(Words(n, seed, epoch, stream, kTable));
    for (std::uint32_t i = 0; i + 1 < n; ++i) {
      std::swap(table[i], table[i + draws.below(static_cast<std::uint32_t>(n) - i)]);
    }
    return table;
  }
  const std::uint64_t a = ceil_sqrt(n);
  std::uint64_t b = (n - 1) / a + 1;
  // A round turns cycles of one digit's length, which is an even permutation if that is odd, whatever the keys.
  if (a % 2 == 1 && b % 2 == 1) ++b;
  std::array<std::uint64_t, kRounds> keys;
  Words words(n, seed, epoch, stream, kKeys);
  for (std::uint64_t& key : keys) key = words.next();
  if (std::max(a, b) <= std::numeric_limits<std::uint16_t>::max()) {
    return make_network<std::uint16_t>(n, a, b, keys.data());
  }
  return make_network<std::uint32_t>(n, a, b, keys.data());
}

void Permutation::fill(Positions positions, std::int64_t* out) const {
  if (const auto* table = std::get_if<Table>(&form_)) {
    for (std::uint64_t i = 0; i < positions.count; ++i) out[i] = (*table)[positions.start + i * positions.step];
  } else if (const auto* narrow = std::get_if<Network<std::uint16_t>>(&form_)) {
    encrypt_run(*narrow, positions, out);
  } else {
    encrypt_run(std::get<Network<std::uint32_t>>(form_), positions, out);
  }
}

void Permutation::take(const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const {
  if (const auto* table = std::get_if<Table>(&form_)) {
    for (std::uint64_t i = 0; i < count; ++i) out[i] = (*table)[positions[i]];
  } else if (const auto* narrow = std::get_if<Network<std::uint16_t>>(&form_)) {
    encrypt_each(*narrow, positions, count, out);
  } else {
    encrypt_each(std::get<Network<std::uint32_t>>(form_), positions, count, out);
  }
}

std::uint64_t Permutation::position(std::uint64_t id) const {
  if (const auto* table = std::get_if<Table>(&form_)) {
    // At most 32 KiB to look through: a second table for the way back would cost more than it saves.
    return static_cast<std::uint64_t>(std::find(table->begin(), table->end(), id) - table->begin());
  }
  if (const auto* narrow = std::get_if<Network<std::uint16_t>>(&form_)) return decrypt_one(*narrow, id);
  return decrypt_one(std::get<Network<std::uint32_t>>(form_), id);
}

std::shared_ptr<const Permutation> Shuffled::permutation(std::uint64_t epoch) const {
  return cache_.get(epoch, [&] { return std::make_shared<Permutation>(n_, seed_, epoch); });
}

void Shuffled::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  permutation(epoch)->fill(positions, out);
}

void Shuffled::take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const {
  permutation(epoch)->take(positions, count, out);
}

std::uint64_t Shuffled::position(std::uint64_t epoch, std::uint64_t id) const {
  return permutation(epoch)->position(id);
}

}  // namespace fastshard
