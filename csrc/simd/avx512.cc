// AVX-512 (F, BW, DQ, VL): thirty-two 16-bit words, or sixteen 32-bit words, to a register.
#include "simd/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = __m512i;
  using Bound = __m512i;
  using Beyond = __m512i;  // the largest ids so far, in 32-bit lanes
  static constexpr int kCount = 32, kUnroll = 2, kTogether = 8, kBlocks = 4;

  static Register load(const std::uint16_t* at) { return _mm512_load_si512(at); }
  static void store(std::uint16_t* at, Register v) { _mm512_store_si512(at, v); }
  static Register set1(std::uint16_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  static Register add(Register x, Register y) { return _mm512_add_epi16(x, y); }
  static Register subtract(Register x, Register y) { return _mm512_sub_epi16(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm512_xor_si512(x, y); }
  static Register mul_low(Register x, Register y) { return _mm512_mullo_epi16(x, y); }
  static Register mul_high(Register x, Register y) { return _mm512_mulhi_epu16(x, y); }
  template <int n>
  static Register shift_right(Register v) {
    return _mm512_srli_epi16(v, n);
  }
  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return _mm512_min_epu16(_mm512_adds_epu16(x, y), subtract(add(x, y), radix));
  }
  static Register count_if_equal(Register v, Register x, Register y) {
    return _mm512_mask_add_epi16(v, _mm512_cmpeq_epi16_mask(x, y), v, set1(1));
  }

  static Beyond none() { return _mm512_setzero_si512(); }
  static Bound bound(std::uint64_t n) { return _mm512_set1_epi32(static_cast<int>(n)); }
  static bool any(Beyond largest, Bound n) { return _mm512_cmpge_epu32_mask(largest, n) != 0; }
  static void emit(Register left, Register right, Register b, Bound, std::int64_t* out, Beyond& largest) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low = mul_low(left, b), high = mul_high(left, b);
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi16(low, high), _mm512_unpacklo_epi16(right, zero));
    const __m512i second = _mm512_add_epi32(_mm512_unpackhi_epi16(low, high), _mm512_unpackhi_epi16(right, zero));
    largest = _mm512_max_epu32(largest, _mm512_max_epu32(first, second));
    _mm512_storeu_si512(out + 0, _mm512_unpacklo_epi32(first, zero));
    _mm512_storeu_si512(out + 8, _mm512_unpackhi_epi32(first, zero));
    _mm512_storeu_si512(out + 16, _mm512_unpacklo_epi32(second, zero));
    _mm512_storeu_si512(out + 24, _mm512_unpackhi_epi32(second, zero));
  }
};

template <bool large_radix>
struct Words32 {
  using Word = std::uint32_t;
  using Register = __m512i;
  struct Spread {
    Register even, odd;  // the words, or products, of even and of odd lanes; words in the low halves of 64-bit lanes
  };
  using Bound = __m512i;   // n - 1
  using Beyond = __m512i;  // negative 64-bit lanes went beyond
  static constexpr int kCount = 16, kUnroll = 4, kTogether = 4, kBlocks = 1;
  static constexpr bool kLargeRadix = large_radix;

  static Register load(const std::uint32_t* at) { return _mm512_load_si512(at); }
  static void store(std::uint32_t* at, Register v) { _mm512_store_si512(at, v); }
  static Register set1(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
  static Register add(Register x, Register y) { return _mm512_add_epi32(x, y); }
  static Register subtract(Register x, Register y) { return _mm512_sub_epi32(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm512_xor_si512(x, y); }
  static Register minimum(Register x, Register y) { return _mm512_min_epu32(x, y); }

  static Register high_half(Register v) { return _mm512_srli_epi64(v, 32); }
  // Even lanes of both, then odd lanes of both, within each quarter of a register.
  template <int lanes>
  static Register join(Spread v) {
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(v.even), _mm512_castsi512_ps(v.odd), lanes));
  }
  static Spread spread(Register v) { return {v, high_half(v)}; }
  static Spread multiply(Spread v, Register factor) {
    return {_mm512_mul_epu32(v.even, factor), _mm512_mul_epu32(v.odd, factor)};
  }
  static Spread fold(Spread v) { return {bit_xor(v.even, high_half(v.even)), bit_xor(v.odd, high_half(v.odd))}; }
  static Register join_folded(Spread v) { return bit_xor(join<0x88>(v), join<0xDD>(v)); }
  static Register join_high(Spread v) { return join<0xDD>(v); }

  static Register add_modulo(Register x, Register y, Register radix) { return add_modulo32<Words32>(x, y, radix); }
  // v + more where x > y.
  static Register add_if_greater(Register v, Register more, Register x, Register y) {
    return _mm512_mask_add_epi32(v, _mm512_cmpgt_epu32_mask(x, y), v, more);
  }
  static Register count_if_equal(Register v, Register x, Register y) {
    return _mm512_mask_add_epi32(v, _mm512_cmpeq_epi32_mask(x, y), v, set1(1));
  }

  static Beyond none() { return _mm512_setzero_si512(); }
  static Bound bound(std::uint64_t n) { return _mm512_set1_epi64(static_cast<long long>(n - 1)); }
  static bool any(Beyond beyond, Bound) { return _mm512_movepi64_mask(beyond) != 0; }
  static void emit(Register left, Register right, Register b, Bound last, std::int64_t* out, Beyond& beyond) {
    const Register low_halves = _mm512_set1_epi64(0xFFFFFFFF);
    const Spread product = multiply(spread(left), b);
    const Register even = _mm512_add_epi64(product.even, _mm512_and_si512(right, low_halves));
    const Register odd = _mm512_add_epi64(product.odd, high_half(right));
    _mm512_storeu_si512(out, even);
    _mm512_storeu_si512(out + 8, odd);
    // An id can pass 2^63 - 1, but not by as much as 2^63: the difference, with a wrap, has the right sign.
    beyond = _mm512_or_si512(beyond, _mm512_or_si512(_mm512_sub_epi64(last, even), _mm512_sub_epi64(last, odd)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::avx512_kernels() {
  static const Kernels kernels = {"avx512", encrypt<Words16>, encrypt32<Words32>, 32, 16};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::avx512_kernels() { return nullptr; }
#endif
