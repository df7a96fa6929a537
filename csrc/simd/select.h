// The one place that knows which instruction set runs.
#pragma once

#include "simd/kernels.h"

namespace fastshard {

// The fastest kernels that this machine can run, or those that FASTSHARD_SIMD names ("portable", "avx2", "avx512" or
// "neon"). Chosen at the first call. Throws std::invalid_argument if the named ones are unknown or can't run here.
const Kernels& kernels();

}  // namespace fastshard
