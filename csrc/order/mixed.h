// Mixture: which source each position of an epoch draws from, and the how manieth draw of that source in the epoch it
// is. What the sources hold is not its business: fastshard/orders/mixed.py asks them.
//
// An epoch is whole periods, in which source s is drawn shares[s] times, and at last a part of one. Each epoch makes
// patterns for periods (interleave.h), of kSlots slots together but at least one, and its periods take some of them at
// random: so the draws of a source before any position are known at once, and a stride meets no pattern that goes on
// repeating. Chance is asked for a span of periods at a time, of about kSpan slots if periods are short. The last part
// has a pattern of its own, whose counts are the same in every epoch.
//
// Randomness is Philox4x64-10 with the key (seed, kMixedVersion); see Use in mixed.cc.
// Holds 4 bytes a slot, of kSlots or of a period if that is longer, and of the last part; an epoch's first call makes
// them. Then a position costs a look into the pattern, and a word of Philox for each span that is touched.
#pragma once

#include <vector>

#include "order/epoch_cache.h"
#include "order/interleave.h"

namespace fastshard {

// Half of the key, so that no other order shares a stream: "mixing/0" in ASCII, the first letter in the highest byte.
constexpr std::uint64_t kMixedVersion = 0x6D6978696E672F30;

class Mixture {
 public:
  // shares as Interleaver has them. num_samples, the positions of an epoch, is in [1, 2^63).
  Mixture(std::vector<std::uint32_t> shares, std::uint64_t seed, std::uint64_t num_samples);

  std::uint64_t num_sources() const { return shares_.size(); }

  // How often each source is drawn in an epoch.
  std::vector<std::uint64_t> counts() const;

  // Sorts positions[0 .. count) by source. Source s has the entries up to ends[s] from where the source before it ends:
  // `where` is an index of positions, in ascending order, and `draws` which draw of s in the epoch, from 0, is there.
  void split(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* where,
             std::uint64_t* draws, std::int64_t* ends) const;

 private:
  struct Patterns {
    std::vector<Slot> spans;  // number_ of them, one after the other
    std::vector<Slot> rest;
  };
  std::shared_ptr<const Patterns> patterns(std::uint64_t epoch) const;

  std::uint64_t seed_;
  std::vector<std::uint32_t> shares_;
  std::uint32_t period_, periods_;      // slots in a period, and periods in a span
  std::uint64_t whole_;                 // positions in whole periods
  std::uint64_t number_;                // of spans that are made for them
  std::uint32_t rest_;                  // positions after them
  std::vector<std::uint32_t> in_rest_;  // draws of each source there
  EpochCache<Patterns> cache_;
};

}  // namespace fastshard
