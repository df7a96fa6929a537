// torch.randperm on the CPU, as a chain of swaps: the one way to torch's order. Costs the whole permutation.
#pragma once

#include <atomic>
#include <cstdint>

namespace fastshard {

// Writes torch.randperm(n) for manual_seed(seed) to entries[0, n), n from 1 on; 32-bit entries hold n below 2^32. Looks
// at `cancelled` every few milliseconds; returns false, with the entries in no particular state, if it became true.
// Up to `threads` threads, the caller's among them, work on it and end with the call; their number does not change what
// is written. Each takes a few megabytes of memory for itself. Throws nothing.
bool torch_randperm(std::uint32_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled,
                    unsigned threads = 1);
bool torch_randperm(std::uint64_t* entries, std::uint64_t n, std::uint64_t seed, const std::atomic<bool>& cancelled,
                    unsigned threads = 1);

}  // namespace fastshard
