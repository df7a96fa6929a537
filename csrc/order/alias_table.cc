#include "order/alias_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fastshard {
namespace {

using Wide = unsigned __int128;

// Weights as integers whose sum is below 2^64, each rounded down by at most one.
std::vector<std::uint64_t> integer_masses(const double* weights, std::uint64_t n, std::uint64_t* sum) {
  const int exponent = std::ilogb(*std::max_element(weights, weights + n));
  std::vector<std::uint64_t> masses(n);
  Wide total = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    masses[i] = static_cast<std::uint64_t>(std::ldexp(weights[i], 62 - exponent));  // below 2^63
    total += masses[i];
  }
  int shift = 0;
  while (total >> shift >> 64) ++shift;
  *sum = 0;
  for (std::uint64_t& mass : masses) *sum += mass >>= shift;
  return masses;
}

}  // namespace

template <class Alias>
AliasTable<Alias>::AliasTable(const double* weights, std::uint64_t n) : n_(n), columns_(n, sizeof(Column)) {
  std::uint64_t capacity;  // of a column, where weight i has the mass masses[i] * n
  const std::vector<std::uint64_t> masses = integer_masses(weights, n, &capacity);
  const auto mass = [&](std::uint64_t i) { return static_cast<Wide>(masses[i]) * n; };
  const auto next = [&](std::uint64_t i, bool heavy) {
    while (i < n && (mass(i) >= capacity) != heavy) ++i;
    return i;
  };
  const auto set = [&](std::uint64_t i, std::uint64_t kept, std::uint64_t alias) {
    const auto threshold = static_cast<std::uint64_t>((static_cast<Wide>(kept) << 64) / capacity);
    columns_.as<Column>()[i] = {{static_cast<std::uint32_t>(threshold), static_cast<std::uint32_t>(threshold >> 32)},
                                static_cast<Alias>(alias)};
  };
  // One heavy weight at a time fills up light columns until what is left of it fits its own column. The next heavy one
  // fills that up, and goes on. As the masses add up to the capacities exactly, both run out together.
  std::uint64_t light = next(0, false), heavy = next(0, true);
  Wide left = mass(heavy);
  while (heavy < n) {
    if (left > capacity) {
      const auto kept = static_cast<std::uint64_t>(mass(light));
      set(light, kept, heavy);
      left -= capacity - kept;
      light = next(light + 1, false);
      continue;
    }
    const std::uint64_t following = next(heavy + 1, true);
    // A column that is full has itself as its alias, as a threshold of 2^64 can't be written.
    set(heavy, left == capacity ? 0 : static_cast<std::uint64_t>(left), left == capacity ? heavy : following);
    if (following < n) left += mass(following) - capacity;
    heavy = following;
  }
}

template class AliasTable<std::uint32_t>;
template class AliasTable<std::uint64_t>;

}  // namespace fastshard
