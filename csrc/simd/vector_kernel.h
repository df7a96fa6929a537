// The block kernel for any instruction set, written over its vector types.
//
// Included once by each file of an instruction set, inside an anonymous namespace of its own there, so that no code
// compiled with its flags can be linked anywhere else. Several vectors run side by side to hide the latency of the
// multiplications; keys are spread to whole vectors once per call and then used from memory.
//
// A vector type V gives: Word, Cell, Register, kCount (lanes), kUnroll, load, store (aligned), set1, add, bit_xor,
// add_modulo(x, y, radix), add_with_carry(right, stride, radix, left), hash(v, keys), scale(hash, radix), and for the
// result Beyond, none(), emit(left, right, b, n, out, beyond), any(beyond, n).
#pragma once

#include "simd/kernels.h"

namespace {

// 16-bit words: two odd multiplications, each folded down.
template <class V>
inline typename V::Register hash16(typename V::Register v, const typename V::Register* key) {
  v = V::mul_low(V::add(v, key[0]), key[1]);
  v = V::mul_low(V::bit_xor(v, V::template shift_right<7>(v)), key[2]);
  return V::add(V::bit_xor(v, V::template shift_right<9>(v)), key[3]);
}

// 32-bit words in 64-bit lanes: only the low half of a lane counts, mul_wide ignores the other.
template <class V>
inline typename V::Register hash32(typename V::Register v, const typename V::Register* key) {
  v = V::mul_wide(V::bit_xor(v, key[0]), V::set1(0x9E3779B1u));
  v = V::mul_wide(V::bit_xor(v, V::high_half(v)), V::set1(0xD2511F53u));
  return V::add(V::bit_xor(v, V::high_half(v)), key[1]);
}

template <class V>
std::uint64_t encrypt(const fastshard::Network<typename V::Word>& network, fastshard::Lanes<typename V::Word>& lanes,
                      int blocks, std::int64_t* out) {
  using fastshard::kLanes;
  using fastshard::kRounds;
  using Register = typename V::Register;
  constexpr int kVectors = kLanes / V::kCount, kUnroll = V::kUnroll;
  constexpr int kKeys = fastshard::Network<typename V::Word>::kKeys;
  static_assert(kVectors % kUnroll == 0, "a block is a whole number of unrolled vectors");

  alignas(64) Register keys[kRounds][kKeys];
  for (int round = 0; round < kRounds; ++round) {
    for (int k = 0; k < kKeys; ++k) keys[round][k] = V::set1(network.keys[round][k]);
  }
  const Register a = V::set1(network.a), b = V::set1(network.b);
  const Register stride_left = V::set1(lanes.stride_left), stride_right = V::set1(lanes.stride_right);
  std::uint64_t result = 0;
  for (int block = 0; block < blocks; ++block, out += kLanes) {
    auto beyond = V::none();
    for (int group = 0; group < kVectors; group += kUnroll) {
      Register left[kUnroll], right[kUnroll];
      for (int i = 0; i < kUnroll; ++i) {
        auto* const left_at = lanes.left + (group + i) * V::kCount;
        auto* const right_at = lanes.right + (group + i) * V::kCount;
        left[i] = V::load(left_at);
        right[i] = V::load(right_at);
        Register next_left = V::add(left[i], stride_left), next_right = right[i];
        V::add_with_carry(next_right, stride_right, b, next_left);
        V::store(left_at, next_left);
        V::store(right_at, next_right);
      }
      for (int round = 0; round < kRounds; round += 2) {
        for (int i = 0; i < kUnroll; ++i) {
          left[i] = V::add_modulo(left[i], V::scale(V::hash(right[i], keys[round]), a), a);
        }
        for (int i = 0; i < kUnroll; ++i) {
          right[i] = V::add_modulo(right[i], V::scale(V::hash(left[i], keys[round + 1]), b), b);
        }
      }
      for (int i = 0; i < kUnroll; ++i) V::emit(left[i], right[i], b, out + (group + i) * V::kCount, beyond, network.n);
    }
    result |= static_cast<std::uint64_t>(V::any(beyond, network.n)) << block;
  }
  return result;
}

}  // namespace
