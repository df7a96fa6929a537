// Philox4x64-10, the counter-based generator that all keys come from: any block of its output can be had on its own.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. numpy.random.Philox
// produces the same stream (its counter is incremented before the first block), which is how tests check this file.
#pragma once

#include <array>
#include <cstdint>

namespace fastshard {

using PhiloxBlock = std::array<std::uint64_t, 4>;

inline PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint64_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2E7470EE14C6C93, kMultiplier1 = 0xCA5A826395121157;
  constexpr std::uint64_t kWeyl0 = 0x9E3779B97F4A7C15, kWeyl1 = 0xBB67AE8584CAA73B;
  for (int round = 0; round < 10; ++round) {
    const auto product0 = static_cast<unsigned __int128>(kMultiplier0) * counter[0];
    const auto product1 = static_cast<unsigned __int128>(kMultiplier1) * counter[2];
    counter = {static_cast<std::uint64_t>(product1 >> 64) ^ counter[1] ^ key[0], static_cast<std::uint64_t>(product1),
               static_cast<std::uint64_t>(product0 >> 64) ^ counter[3] ^ key[1], static_cast<std::uint64_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// Words by their number, in any order, of one stream of a key: word i is word i % 4 of the block at (epoch, i / 4, 0,
// use), so neighbours share a block.
class PhiloxWords {
 public:
  PhiloxWords(std::array<std::uint64_t, 2> key, std::uint64_t epoch, std::uint64_t use)
      : key_(key), epoch_(epoch), use_(use) {}

  std::uint64_t at(std::uint64_t i) {
    if (i / 4 != number_) {
      number_ = i / 4;
      block_ = philox({epoch_, number_, 0, use_}, key_);
    }
    return block_[i % 4];
  }

 private:
  std::array<std::uint64_t, 2> key_;
  std::uint64_t epoch_, use_;
  std::uint64_t number_ = ~std::uint64_t{0};  // no block has this one
  PhiloxBlock block_{};
};

}  // namespace fastshard
