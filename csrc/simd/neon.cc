// NEON (every 64-bit Arm): eight 16-bit words, or two 32-bit words in 64-bit lanes, to a register.
#include "simd/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = uint16x8_t;
  using Beyond = uint32x4_t;  // the largest ids so far
  static constexpr int kCount = 8, kUnroll = 4;

  static Register load(const std::uint16_t* at) { return vld1q_u16(at); }
  static void store(std::uint16_t* at, Register v) { vst1q_u16(at, v); }
  static Register set1(std::uint16_t v) { return vdupq_n_u16(v); }
  static Register add(Register x, Register y) { return vaddq_u16(x, y); }
  static Register bit_xor(Register x, Register y) { return veorq_u16(x, y); }
  static Register mul_low(Register x, Register y) { return vmulq_u16(x, y); }
  template <int n>
  static Register shift_right(Register v) {
    return vshrq_n_u16(v, n);
  }
  static Register hash(Register v, const Register* key) { return hash16<Words16>(v, key); }
  static Register scale(Register hash, Register radix) {
    const uint32x4_t low = vmull_u16(vget_low_u16(hash), vget_low_u16(radix)), high = vmull_high_u16(hash, radix);
    return vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
  }

  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return vminq_u16(vqaddq_u16(x, y), vsubq_u16(vaddq_u16(x, y), radix));
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register reduced = vsubq_u16(vaddq_u16(right, stride), radix);
    right = vminq_u16(vqaddq_u16(right, stride), reduced);
    left = vsubq_u16(left, vceqq_u16(right, reduced));
  }

  static Beyond none() { return vdupq_n_u32(0); }
  static bool any(Beyond largest, std::uint64_t n) { return vmaxvq_u32(largest) >= n; }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& largest, std::uint64_t) {
    const uint32x4_t first = vaddw_u16(vmull_u16(vget_low_u16(left), vget_low_u16(b)), vget_low_u16(right));
    const uint32x4_t second = vaddw_high_u16(vmull_high_u16(left, b), right);
    largest = vmaxq_u32(largest, vmaxq_u32(first, second));
    vst1q_s64(out + 0, vreinterpretq_s64_u64(vmovl_u32(vget_low_u32(first))));
    vst1q_s64(out + 2, vreinterpretq_s64_u64(vmovl_high_u32(first)));
    vst1q_s64(out + 4, vreinterpretq_s64_u64(vmovl_u32(vget_low_u32(second))));
    vst1q_s64(out + 6, vreinterpretq_s64_u64(vmovl_high_u32(second)));
  }
};

struct Words32 {
  using Word = std::uint32_t;
  using Register = uint64x2_t;
  using Beyond = uint64x2_t;  // all ones in lanes that went beyond
  static constexpr int kCount = 2, kUnroll = 8;

  static Register load(const std::uint64_t* at) { return vld1q_u64(at); }
  static void store(std::uint64_t* at, Register v) { vst1q_u64(at, v); }
  static Register set1(std::uint64_t v) { return vdupq_n_u64(v); }
  static Register add(Register x, Register y) { return vaddq_u64(x, y); }
  static Register bit_xor(Register x, Register y) { return veorq_u64(x, y); }
  static Register mul_wide(Register x, Register y) { return vmull_u32(vmovn_u64(x), vmovn_u64(y)); }
  static Register high_half(Register v) { return vshrq_n_u64(v, 32); }
  static Register hash(Register v, const Register* key) { return hash32<Words32>(v, key); }
  static Register scale(Register hash, Register radix) { return high_half(mul_wide(hash, radix)); }

  static Register add_modulo(Register x, Register y, Register radix) {
    const Register sum = vaddq_u64(x, y);
    return vbslq_u64(vcgeq_u64(sum, radix), vsubq_u64(sum, radix), sum);
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register sum = vaddq_u64(right, stride), carry = vcgeq_u64(sum, radix);
    right = vbslq_u64(carry, vsubq_u64(sum, radix), sum);
    left = vsubq_u64(left, carry);
  }

  static Beyond none() { return vdupq_n_u64(0); }
  static bool any(Beyond beyond, std::uint64_t) { return (vgetq_lane_u64(beyond, 0) | vgetq_lane_u64(beyond, 1)) != 0; }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& beyond, std::uint64_t n) {
    const Register id = add(mul_wide(left, b), right);
    vst1q_s64(out, vreinterpretq_s64_u64(id));
    beyond = vorrq_u64(beyond, vcgeq_u64(id, set1(n)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::neon_kernels() {
  static const Kernels kernels = {"neon", encrypt<Words16>, encrypt<Words32>, 1};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::neon_kernels() { return nullptr; }
#endif
