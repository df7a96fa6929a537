// How many of the positions [start, length) a rank gets. They are start + rank, start + rank + num_replicas, ..., as
// torch's DistributedSampler deals them.
#pragma once

#include <cstdint>

namespace fastshard {

enum class Uneven {
  kPad,   // every rank gets ceil(left / num_replicas); positions past the end hold what position p mod length holds
  kDrop,  // every rank gets floor(left / num_replicas); the last positions are not used
  kKeep,  // every position exactly once; ranks differ by at most one
};

struct SliceShape {
  std::uint64_t num_samples;  // how many positions it has, padding included
  std::uint64_t num_padding;  // how many of its last ones lie at or beyond length: 0 or 1
  std::uint64_t total_size;   // positions of all ranks together, padding included
};

// start <= length < 2^63, rank < num_replicas < 2^63: then nothing here exceeds 64 bits.
inline SliceShape slice_shape(std::uint64_t length, std::uint64_t start, std::uint64_t rank, std::uint64_t num_replicas,
                              Uneven uneven) {
  const std::uint64_t left = length - start, each = left / num_replicas, rest = left % num_replicas;
  switch (uneven) {
    case Uneven::kDrop:
      return {each, 0, each * num_replicas};
    case Uneven::kKeep:
      return {each + (rank < rest), 0, left};
    case Uneven::kPad:
      break;
  }
  const std::uint64_t padding = rest != 0 && rank >= rest;
  const std::uint64_t padded = each + (rest != 0);
  return {padded, padding, padded * num_replicas};
}

}  // namespace fastshard
