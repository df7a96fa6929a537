// AVX2: sixteen 16-bit words, or four 32-bit words in 64-bit lanes, to a register. Compiled with -mavx2.
#include "simd/kernels.h"

#ifdef __AVX2__
#include <immintrin.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = __m256i;
  using Beyond = __m256i;  // the largest ids so far, in 32-bit lanes
  static constexpr int kCount = 16, kUnroll = 4;

  static Register load(const std::uint16_t* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static void store(std::uint16_t* at, Register v) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), v); }
  static Register set1(std::uint16_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
  static Register add(Register x, Register y) { return _mm256_add_epi16(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm256_xor_si256(x, y); }
  static Register mul_low(Register x, Register y) { return _mm256_mullo_epi16(x, y); }
  template <int n>
  static Register shift_right(Register v) {
    return _mm256_srli_epi16(v, n);
  }
  static Register hash(Register v, const Register* key) { return hash16<Words16>(v, key); }
  static Register scale(Register hash, Register radix) { return _mm256_mulhi_epu16(hash, radix); }

  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return _mm256_min_epu16(_mm256_adds_epu16(x, y), _mm256_sub_epi16(_mm256_add_epi16(x, y), radix));
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register reduced = _mm256_sub_epi16(_mm256_add_epi16(right, stride), radix);
    right = _mm256_min_epu16(_mm256_adds_epu16(right, stride), reduced);
    left = _mm256_sub_epi16(left, _mm256_cmpeq_epi16(right, reduced));
  }

  static Beyond none() { return _mm256_setzero_si256(); }
  static bool any(Beyond largest, std::uint64_t n) {
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(n));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_max_epu32(largest, bound), largest)) != 0;
  }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& largest, std::uint64_t) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_mullo_epi16(left, b), high = _mm256_mulhi_epu16(left, b);
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

struct Words32 {
  using Word = std::uint32_t;
  using Register = __m256i;
  using Beyond = __m256i;  // all ones in lanes that went beyond
  static constexpr int kCount = 4, kUnroll = 4;

  static Register load(const std::uint64_t* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }
  static void store(std::uint64_t* at, Register v) { _mm256_store_si256(reinterpret_cast<__m256i*>(at), v); }
  static Register set1(std::uint64_t v) { return _mm256_set1_epi64x(static_cast<long long>(v)); }
  static Register add(Register x, Register y) { return _mm256_add_epi64(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm256_xor_si256(x, y); }
  static Register mul_wide(Register x, Register y) { return _mm256_mul_epu32(x, y); }
  static Register high_half(Register v) { return _mm256_srli_epi64(v, 32); }
  static Register hash(Register v, const Register* key) { return hash32<Words32>(v, key); }
  static Register scale(Register hash, Register radix) { return high_half(mul_wide(hash, radix)); }

  // Picks x where `sign` is negative.
  static Register where_negative(Register sign, Register x, Register y) {
    return _mm256_castpd_si256(
        _mm256_blendv_pd(_mm256_castsi256_pd(y), _mm256_castsi256_pd(x), _mm256_castsi256_pd(sign)));
  }
  static Register add_modulo(Register x, Register y, Register radix) {
    const Register sum = _mm256_add_epi64(x, y), reduced = _mm256_sub_epi64(sum, radix);
    return where_negative(reduced, sum, reduced);
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register sum = _mm256_add_epi64(right, stride), reduced = _mm256_sub_epi64(sum, radix);
    right = where_negative(reduced, sum, reduced);
    left = _mm256_sub_epi64(_mm256_add_epi64(left, set1(1)), _mm256_srli_epi64(reduced, 63));
  }

  static Beyond none() { return _mm256_setzero_si256(); }
  static bool any(Beyond beyond, std::uint64_t) { return _mm256_movemask_epi8(beyond) != 0; }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& beyond, std::uint64_t n) {
    const __m256i id = add(mul_wide(left, b), right);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), id);
    // a * b can pass 2^63, and AVX2 compares signed: shift both by 2^63.
    const __m256i sign = set1(std::uint64_t{1} << 63);
    beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi64(bit_xor(id, sign), bit_xor(set1(n - 1), sign)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::avx2_kernels() {
  static const Kernels kernels = {"avx2", encrypt<Words16>, encrypt<Words32>, 16};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::avx2_kernels() { return nullptr; }
#endif
