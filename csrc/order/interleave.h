// Interleaves several sources in fixed proportions, at random, such that at every prefix each source's count is within
// one of its share.
//
// Of `period` slots source s has shares[s]; its j-th draw (from 0) may come in the slots from floor(j * period /
// shares[s]) up to, without, its deadline ceil((j + 1) * period / shares[s]): this is the same as a count in
// {floor, ceil} of p * shares[s] / period after p slots. Such windows can always be kept, and taking the draw of the
// earliest deadline keeps them. So does any other draw as long as there is room: let `room` of a slot D be how many
// sources may be ahead there (have drawn a draw whose deadline is after D), which is D minus all draws due by D. A draw
// made in slot t takes one of the room of each slot in (t, deadline), and whatever leaves no room below zero can be
// completed (Hall's condition, which is enough as the windows are intervals).
//
// Among the draws that may be made, chance decides, so that a source does not fall to the same rank again and again.
// Each is weighted by the probability with which it would come in this slot, given how far its source is, if each slot
// had each source in proportion; and by what is owed to the source in this slot by the patterns made before, so that
// over many patterns every slot has every source in proportion. All in integers: ranks must agree to the bit.
//
// Cost of a pattern: up to a division for every source in every slot, and 2 bytes for each while patterns are made.
// Sources: Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980 (the bound, and that earliest
// deadlines keep it); Baruah, Cohen, Plaxton, Varvel, "Proportionate progress", Algorithmica 15, 1996 (the windows).
#pragma once

#include <cstdint>
#include <vector>

#include "order/philox.h"

namespace fastshard {

// What a slot of a pattern holds: a source, and how many draws of it, fewer than 2^22, come before.
using Slot = std::uint32_t;
constexpr int kSourceBits = 10;
constexpr std::uint32_t kMaxSources = 1u << kSourceBits, kMaxPeriod = 1u << 20;
inline std::uint32_t source_of(Slot slot) { return slot % kMaxSources; }
inline std::uint32_t before_of(Slot slot) { return slot >> kSourceBits; }

// How many draws of each source the first `length` slots of a period have if the earliest deadline always comes first.
std::vector<std::uint32_t> earliest_deadline_counts(const std::vector<std::uint32_t>& shares, std::uint32_t length);

class Interleaver {
 public:
  // Of patterns of the first `length` slots of a period, which have counts[s] draws of source s: the shares for a whole
  // period, else what earliest_deadline_counts gives, since not every choice could be kept.
  // The shares are above 0 and add up to the period, at most kMaxPeriod; there are at most kMaxSources. Fewer than 2^16
  // patterns will be made.
  Interleaver(std::vector<std::uint32_t> shares, std::uint32_t length, std::vector<std::uint32_t> counts,
              std::uint64_t patterns);

  // Writes the next pattern to out[0 .. length), as one that comes after `earlier` whole periods of the same. Slot t is
  // decided by word first_word + t.
  void make(PhiloxWords& words, std::uint64_t first_word, std::uint32_t earlier, Slot* out);

 private:
  // Where a source is as the slots go by.
  struct Source {
    std::uint32_t share, count;
    std::uint32_t drawn, due;  // draws made, and draws due by now
    std::uint32_t fraction;    // of period: how much of the next draw is due already
    std::uint32_t deadline;    // of the next draw
  };

  // The slots without room, in order as the slots go by. Each slot is looked at once, whatever comes in between.
  class Full {
   public:
    // room[0 .. length] of a pattern, where the end never has any.
    void reset(const std::vector<std::uint32_t>& room);
    // The first one after `slot`.
    std::uint32_t after(std::uint32_t slot);
    // Takes one of the room of the slots from `first` up to, without, `end`.
    void take(std::uint32_t first, std::uint32_t end);

   private:
    void found(std::uint32_t slot);

    std::vector<std::uint32_t> room_;
    std::vector<std::uint32_t> found_;  // a heap, the first slot on top
    std::uint32_t looked_ = 0;          // slots up to here without room are in found_
  };

  std::uint32_t deadline(const Source& source) const;
  std::uint64_t odds(const Source& source, std::uint32_t slot, std::size_t number) const;
  std::size_t choose(std::uint32_t slot, std::uint32_t full, PhiloxWords& words, std::uint64_t word);

  std::uint32_t period_, length_;
  std::vector<std::uint32_t> shares_, counts_;
  Full full_;
  std::vector<std::uint32_t> room_;  // of slots 0 .. length, at the start of a pattern
  std::vector<std::uint16_t> had_;   // how many of the patterns made had source s in slot t: t * sources + s; empty
                                     // if there is but one
  std::uint64_t made_ = 0;
  std::vector<Source> sources_;  // of the pattern being made
  std::vector<std::uint64_t> odds_;
};

}  // namespace fastshard
