// The portable kernels: the norm that every other one is compared with, to the bit. Plain loops over a block's lanes,
// which compilers turn into whatever vectors the base instruction set has.
#include "order/feistel.h"
#include "simd/kernels.h"

namespace fastshard {
namespace {

template <class Word>
std::uint64_t encrypt(const Network<Word>& network, Lanes<Word>& lanes, int blocks, std::int64_t* out) {
  std::uint64_t result = 0;
  for (int block = 0; block < blocks; ++block, out += kLanes) {
    Word left[kLanes], right[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      left[i] = lanes.left[i];
      right[i] = lanes.right[i];
      const Word carry = lanes.stride_right >= static_cast<Word>(network.b - right[i]) ? 1 : 0;
      lanes.right[i] = static_cast<Word>(right[i] + lanes.stride_right - carry * network.b);
      lanes.left[i] = static_cast<Word>(left[i] + lanes.stride_left + carry);
    }
    encrypt_rounds(network, left, right, kLanes);
    std::uint64_t beyond = 0;
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t id = std::uint64_t{left[i]} * network.b + right[i];
      out[i] = static_cast<std::int64_t>(id);
      beyond |= static_cast<std::uint64_t>(id >= network.n);
    }
    result |= beyond << block;
  }
  return result;
}

}  // namespace

const Kernels* portable_kernels() {
  static const Kernels kernels = {"portable", encrypt<std::uint16_t>, encrypt<std::uint32_t>, 1, 1};
  return &kernels;
}

}  // namespace fastshard
