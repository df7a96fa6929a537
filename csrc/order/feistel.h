// The network behind Shuffled: a generalised Feistel cipher over a mixed-radix domain, with cycle-walking.
//
// A position x < n is written as x = L * b + R with L < a and R < b, where a = ceil(sqrt(n)) and b = ceil(n / a). Even
// rounds add a keyed hash of R to L modulo a, odd rounds a hash of L to R modulo b; both can be undone, so the network
// is a bijection of [0, a * b). A result at or above n is encrypted again until it falls below: about one position in
// sqrt(n) needs that, and no power of two is involved. See docs/design.md for why, and STATISTICS' sources there.
//
// Cost: kRounds hashes per id, no division after the first of a run, no memory but the keys.
// Word is uint16_t (n <= 65535^2; eight lanes in a 128-bit register) or uint32_t (everything else up to 2^63 - 1).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "order/order.h"
#include "order/philox.h"

namespace fastshard {

constexpr int kRounds = 8;

template <class Word>
struct RoundKey;

// Hash of 16-bit words: two odd multiplications, each folded down. Four keys a round from one 64-bit word.
template <>
struct RoundKey<std::uint16_t> {
  std::uint16_t k0, k1, k2, k3;

  explicit RoundKey(std::uint64_t word = 0)
      : k0(static_cast<std::uint16_t>(word)),
        k1(static_cast<std::uint16_t>(word >> 16 | 1)),
        k2(static_cast<std::uint16_t>(word >> 32 | 1)),
        k3(static_cast<std::uint16_t>(word >> 48)) {}

  // Casts keep every step in 16 bits, so that compilers use 16-bit lanes.
  std::uint16_t hash(std::uint16_t v) const {
    v = static_cast<std::uint16_t>(v + k0);
    v = static_cast<std::uint16_t>(v * std::uint32_t{k1});
    v = static_cast<std::uint16_t>(v ^ (v >> 7));
    v = static_cast<std::uint16_t>(v * std::uint32_t{k2});
    v = static_cast<std::uint16_t>(v ^ (v >> 9));
    return static_cast<std::uint16_t>(v + k3);
  }

  // Maps a hash to [0, radix) by multiply-high.
  static std::uint16_t scale(std::uint16_t hash, std::uint16_t radix) {
    return static_cast<std::uint16_t>((std::uint32_t{hash} * radix) >> 16);
  }
};

// Hash of 32-bit words: two 32x32->64 multiplications whose halves are folded together.
template <>
struct RoundKey<std::uint32_t> {
  std::uint32_t k0, k1;

  explicit RoundKey(std::uint64_t word = 0)
      : k0(static_cast<std::uint32_t>(word)), k1(static_cast<std::uint32_t>(word >> 32)) {}

  std::uint32_t hash(std::uint32_t v) const {
    std::uint64_t p = std::uint64_t{v ^ k0} * 0x9E3779B1u;
    p = std::uint64_t{static_cast<std::uint32_t>(p) ^ static_cast<std::uint32_t>(p >> 32)} * 0xD2511F53u;
    return (static_cast<std::uint32_t>(p) ^ static_cast<std::uint32_t>(p >> 32)) + k1;
  }

  static std::uint32_t scale(std::uint32_t hash, std::uint32_t radix) {
    return static_cast<std::uint32_t>((std::uint64_t{hash} * radix) >> 32);
  }
};

// x + y modulo radix for x, y < radix, without an intermediate above the radix.
template <class Word>
inline Word add_modulo(Word x, Word y, Word radix) {
  const Word wrap = y >= static_cast<Word>(radix - x) ? radix : Word{0};
  return static_cast<Word>(x + y - wrap);
}

template <class Word>
class Feistel {
 public:
  static constexpr std::uint64_t kMaxRadix = static_cast<Word>(-1);

  Feistel(std::uint64_t n, std::uint64_t a, std::uint64_t b, std::array<std::uint64_t, kRounds> words)
      : n_(n), a_(static_cast<Word>(a)), b_(static_cast<Word>(b)) {
    for (int i = 0; i < kRounds; ++i) keys_[i] = RoundKey<Word>(words[i]);
  }

  std::uint64_t at(std::uint64_t x) const {
    do {
      auto left = static_cast<Word>(x / b_), right = static_cast<Word>(x % b_);
      encrypt(&left, &right, 1);
      x = join(left, right);
    } while (x >= n_);
    return x;
  }

  void fill(Positions positions, std::int64_t* out) const {
    alignas(64) Word left[kLanes], right[kLanes], next_left[kLanes], next_right[kLanes];
    // The lanes of the first block by division; each later block is the former one moved on by kLanes * step. That
    // stride may wrap only when it passes n, and then there is no later block.
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kLanes, positions.count); ++i) {
      const std::uint64_t x = positions.start + i * positions.step;
      next_left[i] = static_cast<Word>(x / b_);
      next_right[i] = static_cast<Word>(x % b_);
    }
    for (std::uint64_t i = positions.count; i < kLanes; ++i) next_left[i] = next_right[i] = 0;
    const std::uint64_t stride = kLanes * positions.step;
    const auto stride_left = static_cast<Word>(stride / b_), stride_right = static_cast<Word>(stride % b_);
    for (std::uint64_t done = 0; done < positions.count; done += kLanes) {
      for (int i = 0; i < kLanes; ++i) {
        left[i] = next_left[i];
        right[i] = next_right[i];
        const Word carry = stride_right >= static_cast<Word>(b_ - right[i]) ? 1 : 0;
        next_right[i] = static_cast<Word>(right[i] + stride_right - carry * b_);
        next_left[i] = static_cast<Word>(left[i] + stride_left + carry);
      }
      encrypt(left, right, kLanes);
      store(left, right, std::min<std::uint64_t>(kLanes, positions.count - done), out + done);
    }
  }

 private:
  static constexpr int kLanes = 64;

  std::uint64_t join(Word left, Word right) const { return std::uint64_t{left} * b_ + right; }

  void encrypt(Word* left, Word* right, int lanes) const {
    for (int round = 0; round < kRounds; round += 2) {
      const RoundKey<Word> even = keys_[round], odd = keys_[round + 1];
      const Word a = a_, b = b_;
      for (int i = 0; i < lanes; ++i) {
        const Word l = add_modulo(left[i], RoundKey<Word>::scale(even.hash(right[i]), a), a);
        left[i] = l;
        right[i] = add_modulo(right[i], RoundKey<Word>::scale(odd.hash(l), b), b);
      }
    }
  }

  void store(const Word* left, const Word* right, std::uint64_t count, std::int64_t* out) const {
    std::uint64_t beyond = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t x = join(left[i], right[i]);
      out[i] = static_cast<std::int64_t>(x);
      beyond |= static_cast<std::uint64_t>(x >= n_);
    }
    if (!beyond) return;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t x = join(left[i], right[i]);
      if (x >= n_) out[i] = static_cast<std::int64_t>(at(x));
    }
  }

  std::uint64_t n_;
  Word a_, b_;
  std::array<RoundKey<Word>, kRounds> keys_;
};

}  // namespace fastshard
