// TarIndexer: the samples of one shard, from a TarScanner that is fed from wherever the shard lies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shards/sample_table.h"
#include "shards/tar_scanner.h"

namespace fastshard {

class TarIndexer {
 public:
  explicit TarIndexer(std::uint64_t file_size);

  // Which bytes it needs next; nothing once the samples are complete.
  std::optional<TarScanner::Want> wants() const;
  // Takes bytes [offset, offset + n) of the file, and goes through all headers that lie whole among them. No progress
  // if those that it wants don't. Throws a TarError whose text has the offset and the key.
  void feed(std::uint64_t offset, const unsigned char* bytes, std::uint64_t n);
  // Reads what is missing from an open file with pread. Also throws a TarError if the file is shorter than was said,
  // and std::system_error.
  void read(int file);

  const SampleTable& samples() const { return samples_; }
  bool has_end() const { return scanner_.has_end(); }

 private:
  void advance(std::uint64_t offset, const unsigned char* bytes, std::uint64_t n);

  std::uint64_t file_size_;
  TarScanner scanner_;
  SampleTable samples_;
};

}  // namespace fastshard
