// The block kernel for any instruction set, written over its vector types.
//
// Included once by each file of an instruction set, inside an anonymous namespace of its own there, so that no code
// compiled with its flags can be linked anywhere else. What limits it is not the number of operations but how many of
// them a processor can look ahead: a round is a chain of some twenty cycles. So vectors go through a round side by
// side, each step for all of them before the next step, and keys are spread to whole vectors once per call.
//
// A vector type V gives: Word, Register, kCount (lanes), kUnroll (vectors of a block whose digits are held at a time),
// kBlocks (blocks that go through the rounds side by side; more than one where a block is too few vectors), kTogether
// (vectors that take each step together), load, store (aligned), set1, add, subtract, bit_xor, add_modulo(x, y, radix),
// count_if_equal(v, x, y): one more than v where x is y, and for the result Beyond, Bound, none(), bound(n),
// emit(left, right, b, bound, out, beyond), any(beyond, bound).
// For 16-bit words also mul_low, mul_high, shift_right<n>. For 32-bit words Spread: a register's words with room for
// products of 64 bits; spread(v), multiply(spread, factor), fold(spread): the halves of each product XORed, and
// join_folded(spread), join_high(spread): those, and the products' high halves, as one register. The joins may reorder
// lanes, as long as one after the other gives back the order.
#pragma once

#include "simd/kernels.h"

namespace {

// One round on kTogether vectors: to = (to + scaled hash of from) modulo radix. 16-bit words: two odd multiplications,
// each folded down.
template <class V, int kTogether>
inline void round16(const typename V::Register* from, typename V::Register* to, const typename V::Register* key,
                    typename V::Register radix) {
  typename V::Register v[kTogether];
  for (int i = 0; i < kTogether; ++i) v[i] = V::mul_low(V::add(from[i], key[0]), key[1]);
  for (auto& x : v) x = V::mul_low(V::bit_xor(x, V::template shift_right<7>(x)), key[2]);
  for (auto& x : v) x = V::mul_high(V::add(V::bit_xor(x, V::template shift_right<9>(x)), key[3]), radix);
  for (int i = 0; i < kTogether; ++i) to[i] = V::add_modulo(to[i], v[i], radix);
}

// 32-bit words: two products of 64 bits, each folded down to 32.
template <class V, int kTogether>
inline void round32(const typename V::Register* from, typename V::Register* to, const typename V::Register* key,
                    typename V::Register radix) {
  const auto first = V::set1(0x9E3779B1u), second = V::set1(0xD2511F53u);
  typename V::Spread v[kTogether];
  for (int i = 0; i < kTogether; ++i) v[i] = V::multiply(V::spread(V::bit_xor(from[i], key[0])), first);
  for (auto& x : v) x = V::multiply(V::fold(x), second);
  for (auto& x : v) x = V::multiply(V::spread(V::add(V::join_folded(x), key[1])), radix);
  for (int i = 0; i < kTogether; ++i) to[i] = V::add_modulo(to[i], V::join_high(v[i]), radix);
}

template <class V, int kVectors>
inline void round_of(const typename V::Register* from, typename V::Register* to, const typename V::Register* key,
                     typename V::Register radix) {
  constexpr int kTogether = V::kTogether < kVectors ? V::kTogether : kVectors;
  for (int i = 0; i < kVectors; i += kTogether) {
    if constexpr (sizeof(typename V::Word) == 2) {
      round16<V, kTogether>(from + i, to + i, key, radix);
    } else {
      round32<V, kTogether>(from + i, to + i, key, radix);
    }
  }
}

// Radices above 2^31, for n above 2^62: x + y may pass 2^32, so what tells a sum below the radix is that x grew when
// the radix was taken off it. Below, a sum less the radix is then a larger number, and the smaller of the two is right.
template <class V>
inline typename V::Register add_modulo32(typename V::Register x, typename V::Register y, typename V::Register radix) {
  if constexpr (V::kLargeRadix) {
    const auto reduced = V::add(x, V::subtract(y, radix));
    return V::add_if_greater(reduced, radix, reduced, x);
  } else {
    const auto sum = V::add(x, y);
    return V::minimum(sum, V::subtract(sum, radix));
  }
}

// The digits of kUnroll vectors, which then move on by a block.
template <class V>
inline void take_digits(fastshard::Lanes<typename V::Word>& lanes, int first, typename V::Register b,
                        typename V::Register* left, typename V::Register* right) {
  const auto stride_left = V::set1(lanes.stride_left), stride_right = V::set1(lanes.stride_right);
  for (int i = 0; i < V::kUnroll; ++i) {
    auto* const left_at = lanes.left + first + i * V::kCount;
    auto* const right_at = lanes.right + first + i * V::kCount;
    left[i] = V::load(left_at);
    right[i] = V::load(right_at);
    const auto reduced = V::add(right[i], V::subtract(stride_right, b));
    const auto moved = V::add_modulo(right[i], stride_right, b);
    V::store(left_at, V::count_if_equal(V::add(left[i], stride_left), moved, reduced));
    V::store(right_at, moved);
  }
}

// The next kBlocks blocks, side by side. Bit i of the result is set if block i holds a value at or above the bound.
template <class V, int kBlocks, class Keys>
inline std::uint64_t encrypt_blocks(fastshard::Lanes<typename V::Word>& lanes, const Keys& keys, typename V::Register a,
                                    typename V::Register b, typename V::Bound bound, std::int64_t* out) {
  using fastshard::kLanes;
  constexpr int kStep = V::kUnroll * V::kCount;
  constexpr int kVectors = kBlocks * V::kUnroll;
  static_assert(kLanes % kStep == 0, "whole groups of vectors make up a block");
  static_assert(kBlocks == 1 || kStep == kLanes, "several blocks only where one is not enough");
  typename V::Beyond beyond[kBlocks];
  for (auto& each : beyond) each = V::none();
  for (int first = 0; first < kLanes; first += kStep) {
    typename V::Register left[kVectors], right[kVectors];
    for (int block = 0; block < kBlocks; ++block) {
      take_digits<V>(lanes, first, b, left + block * V::kUnroll, right + block * V::kUnroll);
    }
    for (int round = 0; round < fastshard::kRounds; round += 2) {
      round_of<V, kVectors>(right, left, keys[round], a);
      round_of<V, kVectors>(left, right, keys[round + 1], b);
    }
    for (int i = 0; i < kVectors; ++i) {
      V::emit(left[i], right[i], b, bound, out + first + i * V::kCount, beyond[i / V::kUnroll]);
    }
  }
  std::uint64_t result = 0;
  for (int block = 0; block < kBlocks; ++block) {
    result |= static_cast<std::uint64_t>(V::any(beyond[block], bound)) << block;
  }
  return result;
}

template <class V>
std::uint64_t encrypt(const fastshard::Network<typename V::Word>& network, fastshard::Lanes<typename V::Word>& lanes,
                      int blocks, std::int64_t* out) {
  using fastshard::kLanes;
  using fastshard::kRounds;
  using Register = typename V::Register;
  constexpr int kKeys = fastshard::Network<typename V::Word>::kKeys;

  alignas(64) Register keys[kRounds][kKeys];
  for (int round = 0; round < kRounds; ++round) {
    for (int k = 0; k < kKeys; ++k) keys[round][k] = V::set1(network.keys[round][k]);
  }
  const Register a = V::set1(network.a), b = V::set1(network.b);
  const auto bound = V::bound(network.n);
  std::uint64_t result = 0;
  int block = 0;
  for (; block + V::kBlocks <= blocks; block += V::kBlocks) {
    result |= encrypt_blocks<V, V::kBlocks>(lanes, keys, a, b, bound, out + block * kLanes) << block;
  }
  for (; block < blocks; ++block) {
    result |= encrypt_blocks<V, 1>(lanes, keys, a, b, bound, out + block * kLanes) << block;
  }
  return result;
}

// The 32-bit kernel of Words32<large radix?>.
template <template <bool> class V>
std::uint64_t encrypt32(const fastshard::Network<std::uint32_t>& network, fastshard::Lanes<std::uint32_t>& lanes,
                        int blocks, std::int64_t* out) {
  constexpr std::uint32_t kLargest = std::uint32_t{1} << 31;
  if (network.a > kLargest || network.b > kLargest) return encrypt<V<true>>(network, lanes, blocks, out);
  return encrypt<V<false>>(network, lanes, blocks, out);
}

}  // namespace
