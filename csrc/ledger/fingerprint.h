// Fingerprint: what a multiset of ids sums up to, in 24 bytes, whatever the order in which they come. A few nanoseconds
// an id. Two multisets with equal fingerprints are the same, but for a chance that docs/ledger.md puts a bound on.
//
// Frozen: a job's state holds these sums, and golden values in the tests hold them.
#pragma once

#include <cstdint>

namespace fastshard {

// The two hashes of an id. Each is a bijection of 64 bits, so that no single id can stand in for another one.
//
// Source: the finalizers of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014; the constants are Stafford's variant 13) and
// of MurmurHash3 (Appleby). Both begin, as SplitMix64 does, with a multiple of the golden ratio, which takes apart ids
// that follow each other, and with a key each, or 0 would be a fixed point of the second.
struct IdHashes {
  static constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;
  static constexpr std::uint64_t kFirstKey = 0x243F6A8885A308D3, kSecondKey = 0x13198A2E03707344;  // digits of pi

  std::uint64_t first, second;

  // Of the id whose product with kSpread is given: along a range that is a sum.
  static IdHashes of_spread(std::uint64_t spread) {
    std::uint64_t x = spread + kFirstKey;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    std::uint64_t y = spread + kSecondKey;
    y = (y ^ y >> 33) * 0xFF51AFD7ED558CCD;
    y = (y ^ y >> 33) * 0xC4CEB9FE1A85EC53;
    return {x ^ x >> 31, y ^ y >> 33};
  }
};

// All three are sums modulo 2^64, so that a difference of two fingerprints is one too.
struct Fingerprint {
  std::uint64_t count = 0, first = 0, second = 0;

  void add(const std::int64_t* ids, std::uint64_t n);
  void add_range(std::uint64_t start, std::uint64_t stop);  // ids start, start + 1, ..., stop - 1

  Fingerprint& operator+=(const Fingerprint& other) {
    count += other.count;
    first += other.first;
    second += other.second;
    return *this;
  }
  Fingerprint& operator-=(const Fingerprint& other) {
    count -= other.count;
    first -= other.first;
    second -= other.second;
    return *this;
  }
  bool operator==(const Fingerprint& other) const {
    return count == other.count && first == other.first && second == other.second;
  }
};

}  // namespace fastshard
