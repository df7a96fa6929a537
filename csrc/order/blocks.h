// BlockShuffled: blocks in a random order, then samples shuffled within windows of blocks, so that whoever reads the
// positions in turn has only a window's blocks open.
//
// Block k holds the ids from sizes[0] + ... + sizes[k - 1] on, sizes[k] of them. An epoch lays the blocks out in the
// order of one Permutation and cuts that into windows of `window` blocks; the samples of each window are permuted by a
// Permutation of their own. All of them have streams of their own: see kBlocksStream.
// Holds 24 bytes a block, 16 of them made once an epoch. A run of positions costs one search and one Permutation a
// window that it touches, and a search of log2(window) steps an id. Up to Permutation::kStreamTableSize samples in a
// window its Permutation is a table, which costs more than an id does: the last few are kept, but positions that jump
// from window to window make many.
#pragma once

#include <array>
#include <vector>

#include "order/epoch_cache.h"
#include "order/permutation.h"

namespace fastshard {

// Streams of the Permutations: the blocks' own, and window w's is kWindowStream + w.
constexpr std::uint64_t kBlocksStream = 1, kWindowStream = 2;

class BlockShuffled final : public Bijection {
 public:
  // The sizes add up to less than 2^63 and more than 0. window >= 1.
  BlockShuffled(const std::int64_t* sizes, std::uint64_t num_blocks, std::uint64_t seed, std::uint64_t window);
  void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const override;
  void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override;
  std::uint64_t position(std::uint64_t epoch, std::uint64_t id) const override;

  // The blocks that positions [start, stop) touch, in the epoch's order of blocks. start <= stop <= the sizes' sum.
  std::vector<std::int64_t> blocks_of(std::uint64_t epoch, std::uint64_t start, std::uint64_t stop) const;

 private:
  // One epoch's blocks, side by side.
  struct Layout {
    explicit Layout(Permutation order) : order(std::move(order)) {}

    Permutation order;                 // the place of a block
    std::vector<std::int64_t> block;   // the block at a place
    std::vector<std::uint64_t> begin;  // where the block at a place begins, and at last where all end
    // The last windows' permutations, each in the slot of its number modulo theirs.
    std::array<EpochCache<Permutation>, 4> recent;
  };

  // Some consecutive places of a layout, and how their samples are permuted.
  struct Window {
    std::uint64_t first, last;  // places [first, last)
    std::uint64_t begin, size;  // positions [begin, begin + size)
    std::shared_ptr<const Permutation> permutation;
  };

  std::shared_ptr<const Layout> layout(std::uint64_t epoch) const;
  std::uint64_t window_at(const Layout& layout, std::uint64_t position) const;
  void name_samples(const Layout& layout, const Window& here, std::uint64_t count, std::int64_t* out) const;
  Window window(const Layout& layout, std::uint64_t epoch, std::uint64_t number) const;

  std::uint64_t num_blocks_, seed_, window_;
  std::vector<std::uint64_t> base_;  // the first id of each block, and at last their number
  EpochCache<Layout> cache_;
};

}  // namespace fastshard
