// The kernels that exist once per instruction set, and the plain data they work on.
//
// This header holds no function bodies on purpose: it is included by files that are compiled for instruction sets which
// the running machine may lack, and an inline function compiled there could be the copy that the linker keeps.
#pragma once

#include <cstdint>

namespace fastshard {

constexpr int kRounds = 8;
constexpr int kLanes = 64;      // ids per block
constexpr int kMaxBlocks = 64;  // blocks per call, as many as the mask of the result has bits

// One epoch's Feistel network over [0, a * b) with a * b >= n: feistel.h has the formulas.
template <class Word>
struct Network {
  static constexpr int kKeys = 8 / sizeof(Word);  // a 64-bit word of keys a round
  std::uint64_t n;
  Word a, b;
  Word keys[kRounds][kKeys];
};

// Where a run of positions stands: the two digits of each lane's next position, and how far a block moves it.
template <class Word>
struct Lanes {
  alignas(64) Word left[kLanes];
  alignas(64) Word right[kLanes];
  Word stride_left, stride_right;
};

// Encrypts the next `blocks` (at most kMaxBlocks) blocks of `lanes`, moves `lanes` past them and writes their ids to
// out[0 .. blocks * kLanes). Bit i of the result is set if block i holds a value at or above n, which the caller has to
// encrypt again.
template <class Word>
using BlockKernel = std::uint64_t (*)(const Network<Word>& network, Lanes<Word>& lanes, int blocks, std::int64_t* out);

struct Kernels {
  const char* name;
  BlockKernel<std::uint16_t> encrypt16;
  BlockKernel<std::uint32_t> encrypt32;
  // Lane i of encrypt16 is written to place (i % lanes / 8 * 2 + i / 2 % 4 * lanes / 4 + i % 2) of its vector of
  // `lanes16` lanes: what interleaving halves of registers gives without a shuffle. 1: lane i to place i.
  int lanes16;
  // Lane i of encrypt32 is written to place (i % 2 * lanes / 2 + i % lanes / 2) of its vector of `lanes32` lanes: the
  // even ones first, since their products are apart from those of the odd ones. 1: lane i to place i.
  int lanes32;
};

// One per instruction set; null where this build has none of that kind.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();

}  // namespace fastshard
