// What the tests of shards and their fuzzer share: archives written by hand, and an index of any bytes.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "shards/tar_indexer.h"

namespace fastshard {

// A header block as tar writes it, with a right checksum.
inline std::string tar_header(const std::string& name, std::uint64_t size, char type = '0') {
  std::string block(kTarBlock, '\0');
  block.replace(0, name.size(), name);
  std::snprintf(&block[124], 12, "%011llo", static_cast<unsigned long long>(size));
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  return block;
}

inline std::string with_checksum(std::string block) {
  block.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (unsigned char byte : block) sum += byte;
  std::snprintf(&block[148], 8, "%06o", sum);
  return block;
}

// Of every block that may be a header.
inline std::string with_right_checksums(std::string bytes) {
  for (std::size_t at = 0; at + kTarBlock <= bytes.size(); at += kTarBlock) {
    if (bytes[at + 156]) bytes.replace(at, kTarBlock, with_checksum(bytes.substr(at, kTarBlock)));
  }
  return bytes;
}

inline std::string tar_member(const std::string& name, const std::string& data, char type = '0') {
  std::string member = with_checksum(tar_header(name, data.size(), type)) + data;
  member.resize((member.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  return member;
}

inline std::string tar_end() { return std::string(2 * kTarBlock, '\0'); }

// Feeds `ahead` bytes a time, each from memory of its own, so that AddressSanitizer sees a read beyond them.
inline void feed_in_pieces(TarIndexer& indexer, const unsigned char* bytes, std::uint64_t n, std::uint64_t ahead) {
  std::uint64_t before = 0;
  for (bool is_first = true; const auto want = indexer.wants(); is_first = false) {
    if (!is_first && want->offset <= before) std::abort();  // no progress
    if (want->length == 0 || want->offset > n || want->length > n - want->offset) std::abort();
    before = want->offset;
    const std::uint64_t length = std::min(std::max(ahead, want->length), n - want->offset);
    const auto piece = std::make_unique<unsigned char[]>(length);
    std::memcpy(piece.get(), bytes + want->offset, length);
    indexer.feed(want->offset, piece.get(), length);
  }
}

// All that an index says, or the error.
inline std::string described(const unsigned char* bytes, std::uint64_t n, std::uint64_t ahead) try {
  TarIndexer indexer(n);
  feed_in_pieces(indexer, bytes, n, ahead);
  const SampleTable& samples = indexer.samples();
  std::string text;
  for (std::size_t sample = 0; sample + 1 < samples.sample_starts.size(); ++sample) {
    text += std::string(samples.key(sample)) + ":";
    for (auto file = samples.sample_starts[sample]; file < samples.sample_starts[sample + 1]; ++file) {
      const auto i = static_cast<std::size_t>(file);
      const auto begin = static_cast<std::uint64_t>(samples.offsets[i]);
      if (begin > n || static_cast<std::uint64_t>(samples.sizes[i]) > n - begin) std::abort();
      text += " " + samples.fields[samples.field_ids[i]] + "@" + std::to_string(begin) + "+" +
              std::to_string(samples.sizes[i]);
    }
    text += "\n";
  }
  return text + (indexer.has_end() ? "" : "no end\n");
} catch (const TarError& error) {
  return error.what();
}

inline std::string described(const std::string& tar, std::uint64_t ahead = 0) {
  return described(reinterpret_cast<const unsigned char*>(tar.data()), tar.size(), ahead);
}

inline void check_any_bytes(const unsigned char* bytes, std::uint64_t n) {
  const std::string whole = described(bytes, n, n);
  if (described(bytes, n, 0) != whole || described(bytes, n, 1000) != whole) std::abort();
}

}  // namespace fastshard
