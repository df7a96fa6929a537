// AVX2: sixteen 16-bit words, or eight 32-bit words, to a register. Compiled with -mavx2.
#include "simd/kernels.h"

#ifdef __AVX2__
#include <immintrin.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = __m256i;
  using Bound = __m256i;
  using Beyond = __m256i;  // the largest ids so far, in 32-bit lanes
  static constexpr int kCount = 16, kUnroll = 4, kTogether = 4, kBlocks = 1;

  static Register load(const std::uint16_t* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static void store(std::uint16_t* at, Register v) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), v); }
  static Register set1(std::uint16_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  static Register add(Register x, Register y) { return _mm256_add_epi16(x, y); }
  static Register subtract(Register x, Register y) { return _mm256_sub_epi16(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm256_xor_si256(x, y); }
  static Register mul_low(Register x, Register y) { return _mm256_mullo_epi16(x, y); }
  static Register mul_high(Register x, Register y) { return _mm256_mulhi_epu16(x, y); }
  template <int n>
  static Register shift_right(Register v) {
    return _mm256_srli_epi16(v, n);
  }
  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return _mm256_min_epu16(_mm256_adds_epu16(x, y), subtract(add(x, y), radix));
  }
  static Register count_if_equal(Register v, Register x, Register y) { return subtract(v, _mm256_cmpeq_epi16(x, y)); }

  static Beyond none() { return _mm256_setzero_si256(); }
  static Bound bound(std::uint64_t n) { return _mm256_set1_epi32(static_cast<int>(n)); }
  static bool any(Beyond largest, Bound n) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_max_epu32(largest, n), largest)) != 0;
  }
  static void emit(Register left, Register right, Register b, Bound, std::int64_t* out, Beyond& largest) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = mul_low(left, b), high = mul_high(left, b);
    const __m256i first = _mm256_add_epi32(_mm256_unpacklo_epi16(low, high), _mm256_unpacklo_epi16(right, zero));
    const __m256i second = _mm256_add_epi32(_mm256_unpackhi_epi16(low, high), _mm256_unpackhi_epi16(right, zero));
    largest = _mm256_max_epu32(largest, _mm256_max_epu32(first, second));
    auto* const ids = reinterpret_cast<__m256i*>(out);
    _mm256_storeu_si256(ids + 0, _mm256_unpacklo_epi32(first, zero));
    _mm256_storeu_si256(ids + 1, _mm256_unpackhi_epi32(first, zero));
    _mm256_storeu_si256(ids + 2, _mm256_unpacklo_epi32(second, zero));
    _mm256_storeu_si256(ids + 3, _mm256_unpackhi_epi32(second, zero));
  }
};

template <bool large_radix>
struct Words32 {
  using Word = std::uint32_t;
  using Register = __m256i;
  struct Spread {
    Register even, odd;  // the words, or products, of even and of odd lanes; words in the low halves of 64-bit lanes
  };
  using Bound = __m256i;   // n - 1
  using Beyond = __m256i;  // negative 64-bit lanes went beyond
  static constexpr int kCount = 8, kUnroll = 8, kTogether = 4, kBlocks = 1;
  static constexpr bool kLargeRadix = large_radix;

  static Register load(const std::uint32_t* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static void store(std::uint32_t* at, Register v) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), v); }
  static Register set1(std::uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
  static Register add(Register x, Register y) { return _mm256_add_epi32(x, y); }
  static Register subtract(Register x, Register y) { return _mm256_sub_epi32(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm256_xor_si256(x, y); }
  static Register minimum(Register x, Register y) { return _mm256_min_epu32(x, y); }

  static Register high_half(Register v) { return _mm256_srli_epi64(v, 32); }
  // Even lanes of both, then odd lanes of both, within each half of a register.
  template <int lanes>
  static Register join(Spread v) {
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(v.even), _mm256_castsi256_ps(v.odd), lanes));
  }
  static Spread spread(Register v) { return {v, high_half(v)}; }
  static Spread multiply(Spread v, Register factor) {
    return {_mm256_mul_epu32(v.even, factor), _mm256_mul_epu32(v.odd, factor)};
  }
  static Spread fold(Spread v) { return {bit_xor(v.even, high_half(v.even)), bit_xor(v.odd, high_half(v.odd))}; }
  static Register join_folded(Spread v) { return bit_xor(join<0x88>(v), join<0xDD>(v)); }
  static Register join_high(Spread v) { return join<0xDD>(v); }

  static Register add_modulo(Register x, Register y, Register radix) { return add_modulo32<Words32>(x, y, radix); }
  // v + more where x > y, two numbers that differ.
  static Register add_if_greater(Register v, Register more, Register x, Register y) {
    return add(v, _mm256_and_si256(more, _mm256_cmpeq_epi32(_mm256_max_epu32(x, y), x)));
  }
  static Register count_if_equal(Register v, Register x, Register y) { return subtract(v, _mm256_cmpeq_epi32(x, y)); }

  static Beyond none() { return _mm256_setzero_si256(); }
  static Bound bound(std::uint64_t n) { return _mm256_set1_epi64x(static_cast<long long>(n - 1)); }
  static bool any(Beyond beyond, Bound) { return _mm256_movemask_pd(_mm256_castsi256_pd(beyond)) != 0; }
  static void emit(Register left, Register right, Register b, Bound last, std::int64_t* out, Beyond& beyond) {
    const Register low_halves = _mm256_set1_epi64x(0xFFFFFFFF);
    const Spread product = multiply(spread(left), b);
    const Register even = _mm256_add_epi64(product.even, _mm256_and_si256(right, low_halves));
    const Register odd = _mm256_add_epi64(product.odd, high_half(right));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), even);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4), odd);
    // An id can pass 2^63 - 1, but not by as much as 2^63: the difference, with a wrap, has the right sign.
    beyond = _mm256_or_si256(beyond, _mm256_or_si256(_mm256_sub_epi64(last, even), _mm256_sub_epi64(last, odd)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::avx2_kernels() {
  static const Kernels kernels = {"avx2", encrypt<Words16>, encrypt32<Words32>, 16, 8};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::avx2_kernels() { return nullptr; }
#endif
