// The network behind Shuffled: a generalised Feistel cipher over a mixed-radix domain, with cycle-walking.
//
// A position x < n is written as x = L * b + R with L < a and R < b, where a = ceil(sqrt(n)) and b = ceil(n / a). Even
// rounds add a keyed hash of R to L modulo a, odd rounds a hash of L to R modulo b; both can be undone, so the network
// is a bijection of [0, a * b). A result at or above n is encrypted again until it falls below: about one position in
// sqrt(n) needs that, and no power of two is involved. docs/design.md says why.
//
// Cost: kRounds hashes per id, no division after the first of a run, no memory but the keys. The functions here are the
// norm; csrc/simd/ has the same, many lanes at a time.
// Word is uint16_t (n <= 65535 * 65534) or uint32_t (everything else up to 2^63 - 1).
#pragma once

#include "order/order.h"
#include "simd/kernels.h"

namespace fastshard {

// 16-bit words: two odd multiplications, each folded down. Casts keep every step in 16 bits, so that compilers use
// 16-bit lanes.
inline std::uint16_t hash(std::uint16_t v, const std::uint16_t* key) {
  v = static_cast<std::uint16_t>(v + key[0]);
  v = static_cast<std::uint16_t>(v * std::uint32_t{key[1]});
  v = static_cast<std::uint16_t>(v ^ (v >> 7));
  v = static_cast<std::uint16_t>(v * std::uint32_t{key[2]});
  v = static_cast<std::uint16_t>(v ^ (v >> 9));
  return static_cast<std::uint16_t>(v + key[3]);
}

// 32-bit words: two 32x32->64 multiplications whose halves are folded together.
inline std::uint32_t hash(std::uint32_t v, const std::uint32_t* key) {
  std::uint64_t p = std::uint64_t{v ^ key[0]} * 0x9E3779B1u;
  p = std::uint64_t{static_cast<std::uint32_t>(p) ^ static_cast<std::uint32_t>(p >> 32)} * 0xD2511F53u;
  return (static_cast<std::uint32_t>(p) ^ static_cast<std::uint32_t>(p >> 32)) + key[1];
}

// A hash mapped to [0, radix) by multiply-high.
inline std::uint16_t scale(std::uint16_t hash, std::uint16_t radix) {
  return static_cast<std::uint16_t>((std::uint32_t{hash} * radix) >> 16);
}
inline std::uint32_t scale(std::uint32_t hash, std::uint32_t radix) {
  return static_cast<std::uint32_t>((std::uint64_t{hash} * radix) >> 32);
}

// x + y modulo radix for x, y < radix, without an intermediate above the radix.
template <class Word>
inline Word add_modulo(Word x, Word y, Word radix) {
  const Word wrap = y >= static_cast<Word>(radix - x) ? radix : Word{0};
  return static_cast<Word>(x + y - wrap);
}

template <class Word>
inline Word subtract_modulo(Word x, Word y, Word radix) {
  return static_cast<Word>(x < y ? x + (radix - y) : x - y);
}

template <class Word>
inline void encrypt_rounds(const Network<Word>& network, Word* left, Word* right, int lanes) {
  for (int round = 0; round < kRounds; round += 2) {
    const Word *even = network.keys[round], *odd = network.keys[round + 1];
    const Word a = network.a, b = network.b;
    for (int i = 0; i < lanes; ++i) {
      const Word moved = add_modulo(left[i], scale(hash(right[i], even), a), a);
      left[i] = moved;
      right[i] = add_modulo(right[i], scale(hash(moved, odd), b), b);
    }
  }
}

// The network of n, from kRounds words of key material. a, b as above.
template <class Word>
Network<Word> make_network(std::uint64_t n, std::uint64_t a, std::uint64_t b, const std::uint64_t* words);

// The position whose id is `id`: the rounds undone, walking back while the result is at or above n.
template <class Word>
std::uint64_t decrypt_one(const Network<Word>& network, std::uint64_t id);

// The ids at `positions`, by the kernels of this machine.
template <class Word>
void encrypt_run(const Network<Word>& network, Positions positions, std::int64_t* out);

// The same for positions[0 .. count), whatever they are; two multiplications an id more.
template <class Word>
void encrypt_each(const Network<Word>& network, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out);

}  // namespace fastshard
