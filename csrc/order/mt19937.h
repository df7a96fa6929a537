// MT19937 as torch and numpy seed it (init_genrand), a block of 624 tempered numbers at a time.
//
// Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998.
#pragma once

#include <array>
#include <cstdint>

namespace fastshard {

class Mt19937 {
 public:
  static constexpr int kBlock = 624;

  explicit Mt19937(std::uint32_t seed) {
    state_[0] = seed;
    for (std::uint32_t i = 1; i < kBlock; ++i) {
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
    }
  }

  std::uint32_t next() {
    if (used_ == kBlock) refill();
    return tempered_[used_++];
  }

 private:
  static constexpr int kShift = 397;

  static std::uint32_t twist(std::uint32_t upper, std::uint32_t lower) {
    const std::uint32_t joined = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return (joined >> 1) ^ ((0u - (joined & 1u)) & 0x9908b0dfu);
  }

  void refill() {
    for (int i = 0; i < kBlock - kShift; ++i) state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
    for (int i = kBlock - kShift; i < kBlock - 1; ++i) {
      state_[i] = state_[i + kShift - kBlock] ^ twist(state_[i], state_[i + 1]);
    }
    state_[kBlock - 1] = state_[kShift - 1] ^ twist(state_[kBlock - 1], state_[0]);
    for (int i = 0; i < kBlock; ++i) {
      std::uint32_t y = state_[i];
      y ^= y >> 11;
      y ^= (y << 7) & 0x9d2c5680u;
      y ^= (y << 15) & 0xefc60000u;
      tempered_[i] = y ^ (y >> 18);
    }
    used_ = 0;
  }

  std::array<std::uint32_t, kBlock> state_;
  std::array<std::uint32_t, kBlock> tempered_{};
  int used_ = kBlock;
};

}  // namespace fastshard
