#include "simd/select.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace fastshard {
namespace {

#if defined(__x86_64__) || defined(__i386__)
bool has_avx2() { return __builtin_cpu_supports("avx2"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

const Kernels& choose() {
  // Fastest first. A build for another processor has null in the rows it can't have.
  const struct {
    const Kernels* kernels;
    bool runs;
  } rows[] = {
      {avx512_kernels(), has_avx512()},
      {avx2_kernels(), has_avx2()},
      {neon_kernels(), true},
      {portable_kernels(), true},
  };
  const char* forced = std::getenv("FASTSHARD_SIMD");
  std::string available;
  for (const auto& row : rows) {
    if (!row.kernels || !row.runs) continue;
    if (!forced || !*forced || std::string(forced) == row.kernels->name) return *row.kernels;
    available += available.empty() ? row.kernels->name : std::string(", ") + row.kernels->name;
  }
  throw std::invalid_argument("FASTSHARD_SIMD must name an instruction set that this machine and build have (" +
                              available + "), got FASTSHARD_SIMD=" + forced);
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace fastshard
