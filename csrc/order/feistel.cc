#include "order/feistel.h"

#include <algorithm>

#include "simd/select.h"

namespace fastshard {
namespace {

BlockKernel<std::uint16_t> kernel_for(std::uint16_t) { return kernels().encrypt16; }
BlockKernel<std::uint32_t> kernel_for(std::uint32_t) { return kernels().encrypt32; }

// The digits of a position, and how to move on by a fixed step without dividing again.
template <class Word>
struct Digits {
  std::uint64_t left, right;

  Digits(std::uint64_t x, Word b) : left(x / b), right(x % b) {}

  void move_by(const Digits& step, Word b) {
    right += step.right;
    const bool carry = right >= b;
    right -= carry ? b : 0;
    left += step.left + carry;
  }
};

template <class Word>
Lanes<Word> lanes_at(const Network<Word>& network, Positions positions) {
  Word digits[2][kLanes];
  Digits<Word> at(positions.start, network.b);
  const Digits<Word> step(positions.step, network.b);
  for (int place = 0; place < kLanes; ++place) {
    // Lanes past the end may hold anything: nobody reads them.
    digits[0][place] = static_cast<Word>(at.left);
    digits[1][place] = static_cast<Word>(at.right);
    at.move_by(step, network.b);
  }
  Lanes<Word> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes.left[lane] = digits[0][place_of<Word>(kernels(), lane)];
    lanes.right[lane] = digits[1][place_of<Word>(kernels(), lane)];
  }
  // The product may wrap only where it passes n, and then there is but one block.
  const Digits<Word> stride(positions.step * kLanes, network.b);
  lanes.stride_left = static_cast<Word>(stride.left);
  lanes.stride_right = static_cast<Word>(stride.right);
  return lanes;
}

// Encrypts again, until they are below n, those of ids[0 .. count) that are not; they lie in the blocks whose bits are
// set. Gathered first, so that a small n, where every block has some, pays for vectors and not for branches.
template <class Word>
void walk_on(const Network<Word>& network, std::uint64_t blocks, std::int64_t* ids, int count) {
  std::uint16_t at[kLanes * kMaxBlocks];
  int beyond = 0;
  for (; blocks; blocks &= blocks - 1) {
    const int first = __builtin_ctzll(blocks) * kLanes;
    for (int i = first; i < std::min(first + kLanes, count); ++i) {
      at[beyond] = static_cast<std::uint16_t>(i);
      beyond += static_cast<std::uint64_t>(ids[i]) >= network.n;
    }
  }
  while (beyond) {
    int still = 0;
    for (int done = 0; done < beyond; done += kLanes) {
      const int lanes = std::min(kLanes, beyond - done);
      Word left[kLanes], right[kLanes];
      for (int i = 0; i < lanes; ++i) {
        const auto x = static_cast<std::uint64_t>(ids[at[done + i]]);
        left[i] = static_cast<Word>(x / network.b);
        right[i] = static_cast<Word>(x % network.b);
      }
      encrypt_rounds(network, left, right, lanes);
      for (int i = 0; i < lanes; ++i) {
        const std::uint64_t x = std::uint64_t{left[i]} * network.b + right[i];
        ids[at[done + i]] = static_cast<std::int64_t>(x);
        at[still] = at[done + i];
        still += x >= network.n;
      }
    }
    beyond = still;
  }
}

}  // namespace

template <class Word>
Network<Word> make_network(std::uint64_t n, std::uint64_t a, std::uint64_t b, const std::uint64_t* words) {
  Network<Word> network{n, static_cast<Word>(a), static_cast<Word>(b), {}};
  for (int round = 0; round < kRounds; ++round) {
    // The least significant key first. The two multipliers of the 16-bit hash are odd, or the hash would lose bits.
    for (int k = 0; k < Network<Word>::kKeys; ++k) {
      const bool odd = sizeof(Word) == 2 && (k == 1 || k == 2);
      network.keys[round][k] = static_cast<Word>(words[round] >> (8 * sizeof(Word) * k) | odd);
    }
  }
  return network;
}

template <class Word>
std::uint64_t decrypt_one(const Network<Word>& network, std::uint64_t id) {
  const Word a = network.a, b = network.b;
  do {
    auto left = static_cast<Word>(id / b), right = static_cast<Word>(id % b);
    for (int round = kRounds - 2; round >= 0; round -= 2) {
      right = subtract_modulo(right, scale(hash(left, network.keys[round + 1]), b), b);
      left = subtract_modulo(left, scale(hash(right, network.keys[round]), a), a);
    }
    id = std::uint64_t{left} * b + right;
  } while (id >= network.n);
  return id;
}

template <class Word>
void encrypt_run(const Network<Word>& network, Positions positions, std::int64_t* out) {
  const BlockKernel<Word> kernel = kernel_for(Word{});
  Lanes<Word> lanes = lanes_at(network, positions);
  std::uint64_t left = positions.count;
  while (left >= kLanes) {
    const int blocks = static_cast<int>(std::min<std::uint64_t>(left / kLanes, kMaxBlocks));
    const int count = blocks * kLanes;
    walk_on(network, kernel(network, lanes, blocks, out), out, count);
    out += count;
    left -= static_cast<std::uint64_t>(count);
  }
  if (left) {
    std::int64_t last[kLanes];
    walk_on(network, kernel(network, lanes, 1, last), last, static_cast<int>(left));
    std::copy_n(last, left, out);
  }
}

template <class Word>
void encrypt_each(const Network<Word>& network, const std::uint64_t* positions, std::uint64_t count,
                  std::int64_t* out) {
  const BlockKernel<Word> kernel = kernel_for(Word{});
  int lane_of[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) lane_of[place_of<Word>(kernels(), lane)] = lane;
  // Instead of dividing: as positions are below 2^63, x * inverse / 2^64 lies less than one below x / b, so the
  // quotient is right or one too small.
  const std::uint64_t inverse = ~std::uint64_t{0} / network.b;
  Lanes<Word> start{};  // without a stride; lanes past the end may hold anything that they did
  for (std::uint64_t done = 0; done < count; done += kLanes) {
    const int ids = static_cast<int>(std::min<std::uint64_t>(kLanes, count - done));
    for (int i = 0; i < ids; ++i) {
      const std::uint64_t x = positions[done + i];
      auto left = static_cast<std::uint64_t>((static_cast<unsigned __int128>(x) * inverse) >> 64);
      std::uint64_t right = x - left * network.b;
      const bool more = right >= network.b;
      left += more;
      right -= more ? network.b : 0;
      start.left[lane_of[i]] = static_cast<Word>(left);
      start.right[lane_of[i]] = static_cast<Word>(right);
    }
    Lanes<Word> lanes = start;  // the kernel moves them on
    std::int64_t block[kLanes];
    walk_on(network, kernel(network, lanes, 1, block), block, ids);
    std::copy_n(block, ids, out + done);
  }
}

template Network<std::uint16_t> make_network(std::uint64_t, std::uint64_t, std::uint64_t, const std::uint64_t*);
template Network<std::uint32_t> make_network(std::uint64_t, std::uint64_t, std::uint64_t, const std::uint64_t*);
template std::uint64_t decrypt_one(const Network<std::uint16_t>&, std::uint64_t);
template std::uint64_t decrypt_one(const Network<std::uint32_t>&, std::uint64_t);
template void encrypt_run(const Network<std::uint16_t>&, Positions, std::int64_t*);
template void encrypt_run(const Network<std::uint32_t>&, Positions, std::int64_t*);
template void encrypt_each(const Network<std::uint16_t>&, const std::uint64_t*, std::uint64_t, std::int64_t*);
template void encrypt_each(const Network<std::uint32_t>&, const std::uint64_t*, std::uint64_t, std::int64_t*);

}  // namespace fastshard
