// NEON (every 64-bit Arm): eight 16-bit words, or four 32-bit words, to a register.
#include "simd/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = uint16x8_t;
  using Bound = std::uint64_t;
  using Beyond = uint32x4_t;  // the largest ids so far
  static constexpr int kCount = 8, kUnroll = 4, kTogether = 4, kBlocks = 1;

  static Register load(const std::uint16_t* at) { return vld1q_u16(at); }
  static void store(std::uint16_t* at, Register v) { vst1q_u16(at, v); }
  static Register set1(std::uint16_t v) { return vdupq_n_u16(v); }
  static Register add(Register x, Register y) { return vaddq_u16(x, y); }
  static Register subtract(Register x, Register y) { return vsubq_u16(x, y); }
  static Register bit_xor(Register x, Register y) { return veorq_u16(x, y); }
  static Register mul_low(Register x, Register y) { return vmulq_u16(x, y); }
  static Register mul_high(Register x, Register y) {
    const uint32x4_t low = vmull_u16(vget_low_u16(x), vget_low_u16(y)), high = vmull_high_u16(x, y);
    return vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
  }
  template <int n>
  static Register shift_right(Register v) {
    return vshrq_n_u16(v, n);
  }
  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return vminq_u16(vqaddq_u16(x, y), subtract(add(x, y), radix));
  }
  static Register count_if_equal(Register v, Register x, Register y) { return subtract(v, vceqq_u16(x, y)); }

  static Beyond none() { return vdupq_n_u32(0); }
  static Bound bound(std::uint64_t n) { return n; }
  static bool any(Beyond largest, Bound n) { return vmaxvq_u32(largest) >= n; }
  static void emit(Register left, Register right, Register b, Bound, std::int64_t* out, Beyond& largest) {
    const uint32x4_t first = vaddw_u16(vmull_u16(vget_low_u16(left), vget_low_u16(b)), vget_low_u16(right));
    const uint32x4_t second = vaddw_high_u16(vmull_high_u16(left, b), right);
    largest = vmaxq_u32(largest, vmaxq_u32(first, second));
    vst1q_s64(out + 0, vreinterpretq_s64_u64(vmovl_u32(vget_low_u32(first))));
    vst1q_s64(out + 2, vreinterpretq_s64_u64(vmovl_high_u32(first)));
    vst1q_s64(out + 4, vreinterpretq_s64_u64(vmovl_u32(vget_low_u32(second))));
    vst1q_s64(out + 6, vreinterpretq_s64_u64(vmovl_high_u32(second)));
  }
};

template <bool large_radix>
struct Words32 {
  using Word = std::uint32_t;
  using Register = uint32x4_t;
  struct Spread {
    uint32x4_t low, high;  // the words, in `low` alone, or the products of the lower and of the upper two lanes
  };
  using Bound = uint64x2_t;   // n - 1
  using Beyond = uint64x2_t;  // negative lanes went beyond
  static constexpr int kCount = 4, kUnroll = 8, kTogether = 4, kBlocks = 1;
  static constexpr bool kLargeRadix = large_radix;

  static Register load(const std::uint32_t* at) { return vld1q_u32(at); }
  static void store(std::uint32_t* at, Register v) { vst1q_u32(at, v); }
  static Register set1(std::uint32_t v) { return vdupq_n_u32(v); }
  static Register add(Register x, Register y) { return vaddq_u32(x, y); }
  static Register subtract(Register x, Register y) { return vsubq_u32(x, y); }
  static Register bit_xor(Register x, Register y) { return veorq_u32(x, y); }
  static Register minimum(Register x, Register y) { return vminq_u32(x, y); }

  // Products come from packed words here, so all that the others spread is packed again at once.
  static Spread spread(Register v) { return {v, v}; }
  static Spread multiply(Spread v, Register factor) {
    return {vreinterpretq_u32_u64(vmull_u32(vget_low_u32(v.low), vget_low_u32(factor))),
            vreinterpretq_u32_u64(vmull_high_u32(v.low, factor))};
  }
  static Spread fold(Spread v) { return spread(join_folded(v)); }
  static Register join_folded(Spread v) { return bit_xor(vuzp1q_u32(v.low, v.high), join_high(v)); }
  static Register join_high(Spread v) { return vuzp2q_u32(v.low, v.high); }

  static Register add_modulo(Register x, Register y, Register radix) { return add_modulo32<Words32>(x, y, radix); }
  // v + more where x > y.
  static Register add_if_greater(Register v, Register more, Register x, Register y) {
    return add(v, vandq_u32(more, vcgtq_u32(x, y)));
  }
  static Register count_if_equal(Register v, Register x, Register y) { return subtract(v, vceqq_u32(x, y)); }

  static Beyond none() { return vdupq_n_u64(0); }
  static Bound bound(std::uint64_t n) { return vdupq_n_u64(n - 1); }
  static bool any(Beyond beyond, Bound) { return (vgetq_lane_u64(beyond, 0) | vgetq_lane_u64(beyond, 1)) >> 63 != 0; }
  static void emit(Register left, Register right, Register b, Bound last, std::int64_t* out, Beyond& beyond) {
    const uint64x2_t first = vaddw_u32(vmull_u32(vget_low_u32(left), vget_low_u32(b)), vget_low_u32(right));
    const uint64x2_t second = vaddw_high_u32(vmull_high_u32(left, b), right);
    vst1q_s64(out, vreinterpretq_s64_u64(first));
    vst1q_s64(out + 2, vreinterpretq_s64_u64(second));
    // An id can pass 2^63 - 1, but not by as much as 2^63: the difference, with a wrap, has the right sign.
    beyond = vorrq_u64(beyond, vorrq_u64(vsubq_u64(last, first), vsubq_u64(last, second)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::neon_kernels() {
  static const Kernels kernels = {"neon", encrypt<Words16>, encrypt32<Words32>, 1, 1};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::neon_kernels() { return nullptr; }
#endif
