// Coverage: how often each id in [0, num_ids) came, in num_ids / 8 bytes as long as each comes once.
//
// Bit p of an id's count is in plane p, a bitmap, and planes are made when a count first needs one: a count of 2 or 3
// takes a second plane, one of 4 to 7 a third. So millions of doubles cost what one does, a bitmap more, and no count
// costs more than 31 of them. A plane's memory comes from the system zeroed and untouched, so that of the second plane
// only pages are real that hold a double.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace fastshard {

class Coverage {
 public:
  static constexpr std::uint64_t kMaxPlanes = 31;  // counts are int32; one that would pass 2^31 - 1 stays there

  explicit Coverage(std::uint64_t num_ids);  // below 2^63; bad_alloc where there is no memory

  std::uint64_t num_ids() const { return num_ids_; }

  // All ids in [0, num_ids).
  void add(const std::int64_t* ids, std::uint64_t n);
  // Each id in [start, start + n) as often as counts say; no count is negative.
  void add_counts(std::uint64_t start, const std::int32_t* counts, std::uint64_t n);
  // The counts of ids in [start, start + n).
  void counts(std::uint64_t start, std::uint64_t n, std::int32_t* out) const;

  // The planes one after the other, as little-endian words whose bit i % 64 is id i's.
  std::uint64_t num_bytes() const { return planes_.size() * num_words_ * 8; }
  void to_bytes(unsigned char* out) const;
  // Takes what to_bytes gave in place of what is there; false, and no change, if it is not that of so many ids.
  bool from_bytes(const unsigned char* bytes, std::uint64_t n);

 private:
  struct Free {
    void operator()(std::uint64_t* plane) const { std::free(plane); }
  };
  using Plane = std::unique_ptr<std::uint64_t[], Free>;

  Plane make_plane() const;
  void add_power(std::uint64_t id, std::uint64_t plane);  // 2^plane times

  std::uint64_t num_ids_, num_words_;
  std::vector<Plane> planes_;
};

}  // namespace fastshard
