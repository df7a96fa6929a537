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
  const char* forced = std::getenv("FASTSHARD_SIMD");
  std::string names;
  for (const Kernels* kernels : available_kernels()) {
    if (!forced || !*forced || std::string(forced) == kernels->name) return *kernels;
    names += names.empty() ? kernels->name : std::string(", ") + kernels->name;
  }
  throw std::invalid_argument("FASTSHARD_SIMD must name an instruction set that this machine and build have (" + names +
                              "), got FASTSHARD_SIMD=" + forced);
}

}  // namespace

std::vector<const Kernels*> available_kernels() {
  // A build for another processor has null in the rows it can't have.
  const struct {
    const Kernels* kernels;
    bool runs;
  } rows[] = {
      {avx512_kernels(), has_avx512()},
      {avx2_kernels(), has_avx2()},
      {neon_kernels(), true},
      {portable_kernels(), true},
  };
  std::vector<const Kernels*> available;
  for (const auto& row : rows) {
    if (row.kernels && row.runs) available.push_back(row.kernels);
  }
  return available;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

template <>
int place_of<std::uint16_t>(const Kernels& kernels, int lane) {
  const int width = kernels.lanes16;
  if (width == 1) return lane;
  const int within = lane % width;
  return lane - within + within / 2 % 4 * (width / 4) + within / 8 * 2 + within % 2;
}

template <>
int place_of<std::uint32_t>(const Kernels& kernels, int lane) {
  const int width = kernels.lanes32;
  if (width == 1) return lane;
  const int within = lane % width;
  return lane - within + within % 2 * (width / 2) + within / 2;
}

}  // namespace fastshard
