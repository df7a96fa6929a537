// An alias table: draws an index by weight from one 64-bit word, at the cost of one memory access.
//
// Of n columns of equal mass, column i keeps mass for i up to its threshold and gives what is above to its alias. The
// word, multiplied by n, gives the column in its high half and the place in the column in its low half.
// Everything after the scaling of the weights is exact integer arithmetic, so a table is the same on every platform,
// the masses add up without a remainder, and a weight of zero is never drawn. Weights count in steps of about 2^-63 of
// their sum; a draw from one word can't resolve less.
//
// Sources: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS
// 3(3), 1977; the one sweep that needs no work lists: Huebschle-Schneider and Sanders, "Parallel weighted random
// sampling", ACM TOMS 48(3), 2022.
#pragma once

#include <cstdint>

#include "order/huge_buffer.h"

namespace fastshard {

// Alias is uint32_t (12 bytes a column) or uint64_t (16). Weights are finite, not negative, and one is above zero.
template <class Alias>
class AliasTable {
 public:
  AliasTable(const double* weights, std::uint64_t n);

  struct Column {
    std::uint32_t threshold[2];  // low half first; in halves, lest 12 bytes be padded to 16
    Alias alias;
  };

  // What the word draws is known in two steps, so that a caller can request the column's memory in between.
  std::uint64_t column_of(std::uint64_t word) const { return static_cast<std::uint64_t>(product(word) >> 64); }
  const Column* address(std::uint64_t column) const { return columns_.template as<Column>() + column; }
  std::uint64_t draw(std::uint64_t word) const {
    const std::uint64_t column = column_of(word);
    const Column& at = *address(column);
    const std::uint64_t threshold = std::uint64_t{at.threshold[1]} << 32 | at.threshold[0];
    const std::uint64_t keeps = static_cast<std::uint64_t>(product(word)) < threshold;
    return at.alias ^ ((column ^ at.alias) & (0 - keeps));  // a branch would be mispredicted every other time
  }

 private:
  unsigned __int128 product(std::uint64_t word) const { return static_cast<unsigned __int128>(word) * n_; }

  std::uint64_t n_;
  HugeBuffer columns_;
};

}  // namespace fastshard
