#include "order/blocks.h"

#include <algorithm>
#include <numeric>

namespace fastshard {
namespace {

// The greatest i with begin[i] <= x, of begin[0 .. count), where begin[0] <= x. Of empty blocks and the one after them,
// which begin at the same place, that is the one that has samples.
std::uint64_t last_not_above(const std::uint64_t* begin, std::uint64_t count, std::uint64_t x) {
  std::uint64_t at = 0;
  while (count > 1) {
    const std::uint64_t half = count / 2;
    at += begin[at + half] <= x ? half : 0;  // no branch to mispredict: x is random
    count -= half;
  }
  return at;
}

}  // namespace

BlockShuffled::BlockShuffled(const std::int64_t* sizes, std::uint64_t num_blocks, std::uint64_t seed,
                             std::uint64_t window)
    : num_blocks_(num_blocks), seed_(seed), window_(std::min(window, num_blocks)), base_(num_blocks + 1) {
  for (std::uint64_t k = 0; k < num_blocks; ++k) base_[k + 1] = base_[k] + static_cast<std::uint64_t>(sizes[k]);
}

std::shared_ptr<const BlockShuffled::Layout> BlockShuffled::layout(std::uint64_t epoch) const {
  return cache_.get(epoch, [&] {
    auto made = std::make_shared<Layout>(Permutation(num_blocks_, seed_, epoch, kBlocksStream));
    made->block.resize(num_blocks_);
    made->order.fill({0, num_blocks_, 1}, made->block.data());
    made->begin.resize(num_blocks_ + 1);
    for (std::uint64_t place = 0; place < num_blocks_; ++place) {
      const auto k = static_cast<std::uint64_t>(made->block[place]);
      made->begin[place + 1] = made->begin[place] + (base_[k + 1] - base_[k]);
    }
    return made;
  });
}

std::uint64_t BlockShuffled::window_at(const Layout& layout, std::uint64_t position) const {
  return last_not_above(layout.begin.data(), num_blocks_, position) / window_;
}

BlockShuffled::Window BlockShuffled::window(const Layout& layout, std::uint64_t epoch, std::uint64_t number) const {
  const std::uint64_t first = number * window_, last = first + std::min(window_, num_blocks_ - first);
  const std::uint64_t begin = layout.begin[first], size = layout.begin[last] - begin;
  const auto make = [&] { return std::make_shared<Permutation>(size, seed_, epoch, kWindowStream + number); };
  return {first, last, begin, size, layout.recent[number % layout.recent.size()].get(number, make)};
}

// What is permuted is the window's samples as they lie in the layout; their blocks say which ids these are.
void BlockShuffled::name_samples(const Layout& layout, const Window& here, std::uint64_t count,
                                 std::int64_t* out) const {
  const std::uint64_t* begin = layout.begin.data() + here.first;
  const std::int64_t* block = layout.block.data() + here.first;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t lies = here.begin + static_cast<std::uint64_t>(out[i]);
    const std::uint64_t place = last_not_above(begin, here.last - here.first, lies);
    out[i] = static_cast<std::int64_t>(base_[static_cast<std::uint64_t>(block[place])] + (lies - begin[place]));
  }
}

void BlockShuffled::fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const {
  const auto layout = this->layout(epoch);
  const std::uint64_t step = positions.step;
  for (std::uint64_t left = positions.count, at = positions.start; left;) {
    const Window here = window(*layout, epoch, window_at(*layout, at));
    const std::uint64_t offset = at - here.begin;
    const std::uint64_t count = std::min(left, (here.size - offset - 1) / step + 1);
    here.permutation->fill({offset, count, step}, out);
    name_samples(*layout, here, count, out);
    left -= count;
    out += count;
    if (left) at += count * step;  // beyond the last position it might wrap
  }
}

void BlockShuffled::take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count,
                         std::int64_t* out) const {
  constexpr std::uint64_t kChunk = 256;
  const auto layout = this->layout(epoch);
  std::uint64_t offsets[kChunk];
  for (std::uint64_t done = 0; done < count;) {
    // As many as lie in the window of the first of them, one after the other.
    const Window here = window(*layout, epoch, window_at(*layout, positions[done]));
    std::uint64_t found = 0;
    for (; found < kChunk && done + found < count; ++found) {
      offsets[found] = positions[done + found] - here.begin;
      if (offsets[found] >= here.size) break;  // below the window's begin it has wrapped
    }
    here.permutation->take(offsets, found, out + done);
    name_samples(*layout, here, found, out + done);
    done += found;
  }
}

std::uint64_t BlockShuffled::position(std::uint64_t epoch, std::uint64_t id) const {
  const auto layout = this->layout(epoch);
  const std::uint64_t block = last_not_above(base_.data(), num_blocks_, id);
  const std::uint64_t place = layout->order.position(block);
  const Window here = window(*layout, epoch, place / window_);
  return here.begin + here.permutation->position(layout->begin[place] + (id - base_[block]) - here.begin);
}

std::vector<std::int64_t> BlockShuffled::blocks_of(std::uint64_t epoch, std::uint64_t start, std::uint64_t stop) const {
  constexpr std::uint64_t kChunk = 1024;
  const auto layout = this->layout(epoch);
  std::vector<std::int64_t> touched, samples(kChunk);
  for (std::uint64_t at = start; at < stop;) {
    const Window here = window(*layout, epoch, window_at(*layout, at));
    const std::uint64_t* begin = layout->begin.data() + here.first;
    const std::uint64_t places = here.last - here.first, end = std::min(stop, here.begin + here.size);
    const bool whole = end - at == here.size;
    std::vector<bool> seen(places, whole);
    for (std::uint64_t done = at; done < end && !whole; done += kChunk) {
      const std::uint64_t count = std::min(kChunk, end - done);
      here.permutation->fill({done - here.begin, count, 1}, samples.data());
      for (std::uint64_t i = 0; i < count; ++i) {
        seen[last_not_above(begin, places, here.begin + static_cast<std::uint64_t>(samples[i]))] = true;
      }
    }
    for (std::uint64_t place = 0; place < places; ++place) {
      if (seen[place] && begin[place + 1] > begin[place]) touched.push_back(layout->block[here.first + place]);
    }
    at = end;
  }
  return touched;
}

}  // namespace fastshard
