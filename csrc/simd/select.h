// The one place that knows which instruction set runs.
#pragma once

#include <vector>

#include "simd/kernels.h"

namespace fastshard {

// The fastest kernels that this machine can run, or those that FASTSHARD_SIMD names ("portable", "avx2", "avx512" or
// "neon"). Chosen at the first call. Throws std::invalid_argument if the named ones are unknown or can't run here.
const Kernels& kernels();

// All that this machine can run, the fastest first; the portable ones are the last.
std::vector<const Kernels*> available_kernels();

// The place in a block, and so in its ids, of a lane; see Kernels::lanes16 and lanes32.
template <class Word>
int place_of(const Kernels& kernels, int lane);

}  // namespace fastshard
