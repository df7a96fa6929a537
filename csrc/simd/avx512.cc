// AVX-512 (F, BW, DQ, VL): thirty-two 16-bit words, or eight 32-bit words in 64-bit lanes, to a register.
#include "simd/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "simd/vector_kernel.h"

namespace {

struct Words16 {
  using Word = std::uint16_t;
  using Register = __m512i;
  using Beyond = __m512i;  // the largest ids so far, in 32-bit lanes
  static constexpr int kCount = 32, kUnroll = 2;

  static Register load(const std::uint16_t* at) { return _mm512_load_si512(at); }
  static void store(std::uint16_t* at, Register v) { _mm512_store_si512(at, v); }
  static Register set1(std::uint16_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }
  static Register add(Register x, Register y) { return _mm512_add_epi16(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm512_xor_si512(x, y); }
  static Register mul_low(Register x, Register y) { return _mm512_mullo_epi16(x, y); }
  template <int n>
  static Register shift_right(Register v) {
    return _mm512_srli_epi16(v, n);
  }
  static Register hash(Register v, const Register* key) { return hash16<Words16>(v, key); }
  static Register scale(Register hash, Register radix) { return _mm512_mulhi_epu16(hash, radix); }

  // x + y without wrapping is the saturated sum or, less the radix, a smaller number; wrapping makes it a larger one.
  static Register add_modulo(Register x, Register y, Register radix) {
    return _mm512_min_epu16(_mm512_adds_epu16(x, y), _mm512_sub_epi16(_mm512_add_epi16(x, y), radix));
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register reduced = _mm512_sub_epi16(_mm512_add_epi16(right, stride), radix);
    right = _mm512_min_epu16(_mm512_adds_epu16(right, stride), reduced);
    left = _mm512_mask_add_epi16(left, _mm512_cmpeq_epi16_mask(right, reduced), left, set1(1));
  }

  static Beyond none() { return _mm512_setzero_si512(); }
  static bool any(Beyond largest, std::uint64_t n) {
    return _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(static_cast<int>(n))) != 0;
  }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& largest, std::uint64_t) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low = _mm512_mullo_epi16(left, b), high = _mm512_mulhi_epu16(left, b);
    const __m512i first = _mm512_add_epi32(_mm512_unpacklo_epi16(low, high), _mm512_unpacklo_epi16(right, zero));
    const __m512i second = _mm512_add_epi32(_mm512_unpackhi_epi16(low, high), _mm512_unpackhi_epi16(right, zero));
    largest = _mm512_max_epu32(largest, _mm512_max_epu32(first, second));
    _mm512_storeu_si512(out + 0, _mm512_unpacklo_epi32(first, zero));
    _mm512_storeu_si512(out + 8, _mm512_unpackhi_epi32(first, zero));
    _mm512_storeu_si512(out + 16, _mm512_unpacklo_epi32(second, zero));
    _mm512_storeu_si512(out + 24, _mm512_unpackhi_epi32(second, zero));
  }
};

struct Words32 {
  using Word = std::uint32_t;
  using Register = __m512i;
  using Beyond = __mmask8;
  static constexpr int kCount = 8, kUnroll = 4;

  static Register load(const std::uint64_t* at) { return _mm512_load_si512(at); }
  static void store(std::uint64_t* at, Register v) { _mm512_store_si512(at, v); }
  static Register set1(std::uint64_t v) { return _mm512_set1_epi64(static_cast<long long>(v)); }
  static Register add(Register x, Register y) { return _mm512_add_epi64(x, y); }
  static Register bit_xor(Register x, Register y) { return _mm512_xor_si512(x, y); }
  static Register mul_wide(Register x, Register y) { return _mm512_mul_epu32(x, y); }
  static Register high_half(Register v) { return _mm512_srli_epi64(v, 32); }
  static Register hash(Register v, const Register* key) { return hash32<Words32>(v, key); }
  static Register scale(Register hash, Register radix) { return high_half(mul_wide(hash, radix)); }

  // A sum below the radix wraps to a huge number when the radix is taken off.
  static Register add_modulo(Register x, Register y, Register radix) {
    const Register sum = _mm512_add_epi64(x, y);
    return _mm512_min_epu64(sum, _mm512_sub_epi64(sum, radix));
  }
  static void add_with_carry(Register& right, Register stride, Register radix, Register& left) {
    const Register sum = _mm512_add_epi64(right, stride);
    right = _mm512_min_epu64(sum, _mm512_sub_epi64(sum, radix));
    left = _mm512_mask_add_epi64(left, _mm512_cmpge_epu64_mask(sum, radix), left, set1(1));
  }

  static Beyond none() { return 0; }
  static bool any(Beyond beyond, std::uint64_t) { return beyond != 0; }
  static void emit(Register left, Register right, Register b, std::int64_t* out, Beyond& beyond, std::uint64_t n) {
    const __m512i id = add(mul_wide(left, b), right);
    _mm512_storeu_si512(out, id);
    beyond = static_cast<Beyond>(beyond | _mm512_cmpge_epu64_mask(id, set1(n)));
  }
};

}  // namespace

const fastshard::Kernels* fastshard::avx512_kernels() {
  static const Kernels kernels = {"avx512", encrypt<Words16>, encrypt<Words32>, 32};
  return &kernels;
}

#else
const fastshard::Kernels* fastshard::avx512_kernels() { return nullptr; }
#endif
