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

}  // namespace fastshard
