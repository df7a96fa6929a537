#include "ledger/coverage.h"

#include <algorithm>
#include <new>
#include <utility>

namespace fastshard {
namespace {

// How many ids ahead the word of one is asked for: of a bitmap larger than the caches each is a miss.
constexpr std::uint64_t kAhead = 16;

std::uint64_t load_little(const unsigned char* bytes) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
  return word;
}

void store_little(std::uint64_t word, unsigned char* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(word >> (8 * i));
}

}  // namespace

Coverage::Coverage(std::uint64_t num_ids) : num_ids_(num_ids), num_words_(num_ids / 64 + (num_ids % 64 != 0)) {
  planes_.push_back(make_plane());
}

Coverage::Plane Coverage::make_plane() const {
  // calloc: of a size like this it maps pages that are zero and take no memory before they are touched.
  auto* plane = static_cast<std::uint64_t*>(std::calloc(std::max<std::uint64_t>(num_words_, 1), sizeof(std::uint64_t)));
  if (!plane) throw std::bad_alloc();
  return Plane(plane);
}

void Coverage::add_power(std::uint64_t id, std::uint64_t plane) {
  const std::uint64_t word = id / 64, bit = std::uint64_t{1} << id % 64;
  for (; plane < kMaxPlanes; ++plane) {
    while (planes_.size() <= plane) planes_.push_back(make_plane());
    std::uint64_t& bits = planes_[plane][word];
    bits ^= bit;
    if (bits & bit) return;
  }
  // The carry left the last plane: the count stays at its highest.
  for (plane = 0; plane < kMaxPlanes; ++plane) planes_[plane][word] |= bit;
}

void Coverage::add(const std::int64_t* ids, std::uint64_t n) {
  std::uint64_t* once = planes_[0].get();
  for (std::uint64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(once + static_cast<std::uint64_t>(ids[i + kAhead]) / 64, 1);
    const auto id = static_cast<std::uint64_t>(ids[i]);
    const std::uint64_t bit = std::uint64_t{1} << id % 64, before = once[id / 64];
    once[id / 64] = before ^ bit;
    if (before & bit) add_power(id, 1);
  }
}

void Coverage::add_counts(std::uint64_t start, const std::int32_t* counts, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto count = static_cast<std::uint32_t>(counts[i]);
    for (std::uint64_t plane = 0; count >> plane; ++plane) {
      if (count >> plane & 1) add_power(start + i, plane);
    }
  }
}

void Coverage::counts(std::uint64_t start, std::uint64_t n, std::int32_t* out) const {
  std::fill(out, out + n, 0);
  for (std::uint64_t plane = 0; plane < planes_.size(); ++plane) {
    const std::uint64_t* words = planes_[plane].get();
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t id = start + i;
      out[i] |= static_cast<std::int32_t>(words[id / 64] >> id % 64 & 1) << plane;
    }
  }
}

void Coverage::to_bytes(unsigned char* out) const {
  for (const Plane& plane : planes_) {
    for (std::uint64_t word = 0; word < num_words_; ++word, out += 8) store_little(plane[word], out);
  }
}

bool Coverage::from_bytes(const unsigned char* bytes, std::uint64_t n) {
  const std::uint64_t each = num_words_ * 8, count = each ? n / each : 0;
  if (count * each != n || count > kMaxPlanes || (each && count == 0)) return false;
  const std::uint64_t beyond = num_ids_ % 64 ? ~std::uint64_t{0} << num_ids_ % 64 : 0;
  std::vector<Plane> planes;
  for (std::uint64_t plane = 0; plane < std::max<std::uint64_t>(count, 1); ++plane) planes.push_back(make_plane());
  for (std::uint64_t plane = 0; plane < count; ++plane) {
    for (std::uint64_t word = 0; word < num_words_; ++word, bytes += 8) planes[plane][word] = load_little(bytes);
    if (num_words_ && planes[plane][num_words_ - 1] & beyond) return false;
  }
  planes_ = std::move(planes);
  return true;
}

}  // namespace fastshard
