// Every instruction set that this machine runs gives what the portable kernels give, to the bit, on networks and
// positions of all shapes, radices at the edge of their words included.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "order/feistel.h"
#include "simd/select.h"

namespace fastshard {
namespace {

constexpr int kBlocks = 3;
constexpr std::uint64_t kMaxLength = (std::uint64_t{1} << 63) - 1;

template <class Word>
struct Case {
  Network<Word> network;
  std::uint64_t digits[kLanes][2];
  std::uint64_t stride[2];
};

// Radices up to `largest`, lanes that stay below them for kBlocks blocks, a range that ends anywhere.
template <class Word>
Case<Word> random_case(std::mt19937_64& random, std::uint64_t largest) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  const auto radix = [&] { return below(4) == 0 ? largest - below(3) : 2 + below(largest - 1); };
  Case<Word> made{};
  const std::uint64_t a = radix(), b = radix();
  made.network.a = static_cast<Word>(a);
  made.network.b = static_cast<Word>(b);
  made.network.n = std::min(a * b - (below(2) ? below(a) : a * b / 3), kMaxLength);
  for (auto& round : made.network.keys) {
    for (Word& key : round) key = static_cast<Word>(random());
  }
  for (auto& lane : made.digits) {
    lane[0] = below(a / 4 + 1);
    lane[1] = below(b);
  }
  made.stride[0] = below(a / 8 + 1);
  made.stride[1] = below(b);
  return made;
}

struct Result {
  std::uint64_t beyond;
  std::vector<std::int64_t> ids;
  bool operator==(const Result& other) const { return beyond == other.beyond && ids == other.ids; }
};

template <class Word>
Result run(BlockKernel<Word> kernel, const Case<Word>& given, const Kernels& set) {
  Lanes<Word> lanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& digits = given.digits[place_of<Word>(set, lane)];
    lanes.left[lane] = static_cast<Word>(digits[0]);
    lanes.right[lane] = static_cast<Word>(digits[1]);
  }
  lanes.stride_left = static_cast<Word>(given.stride[0]);
  lanes.stride_right = static_cast<Word>(given.stride[1]);
  Result result{0, std::vector<std::int64_t>(kBlocks * kLanes)};
  result.beyond = kernel(given.network, lanes, kBlocks, result.ids.data());
  return result;
}

class KernelsTest : public testing::TestWithParam<const Kernels*> {};

TEST_P(KernelsTest, Words16GiveThePortableIds) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto given = random_case<std::uint16_t>(random, 65535);
    ASSERT_EQ(run(GetParam()->encrypt16, given, *GetParam()),
              run(portable_kernels()->encrypt16, given, *portable_kernels()))
        << "case " << i;
  }
}

void expect_portable_ids32(const Kernels& set, unsigned seed, std::uint64_t largest) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const auto given = random_case<std::uint32_t>(random, largest);
    ASSERT_EQ(run(set.encrypt32, given, set), run(portable_kernels()->encrypt32, given, *portable_kernels()))
        << "case " << i;
  }
}

TEST_P(KernelsTest, Words32GiveThePortableIds) {
  // ceil(sqrt(2^63)): a * b passes 2^63 here, so signed comparisons would show.
  expect_portable_ids32(*GetParam(), 8, 3037000500u);
}

TEST_P(KernelsTest, Words32GiveThePortableIdsUpToTheRadixWhereSumsPass32Bits) {
  expect_portable_ids32(*GetParam(), 9, std::uint64_t{1} << 31);
  expect_portable_ids32(*GetParam(), 10, (std::uint64_t{1} << 31) + 1);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, KernelsTest, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace fastshard
