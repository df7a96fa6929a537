// SampleTable: the files of a shard, grouped into samples by WebDataset's rule, as flat arrays.
//
// The key of a file is its path up to the first dot of the last component, its field what comes after, in lower case;
// neighbours with one key are a sample. A file takes 18 bytes here, a sample 16 and its key.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace fastshard {

// Where the key of a path ends: at a dot. npos if WebDataset passes the file over.
std::size_t key_length(std::string_view name);

class SampleTable {
 public:
  // Adds a file, or passes it over. `header` is where errors are said to be; throws a TarError if the sample has that
  // field already, or can't have it.
  void add(std::string_view name, std::uint64_t header, std::uint64_t offset, std::uint64_t size);
  // Closes the last sample; throws a TarError if a key came back after other samples.
  void finish();

  std::string_view key(std::size_t sample) const;

  std::vector<std::int64_t> offsets, sizes;  // of each file
  std::vector<std::uint16_t> field_ids;      // of each file, in `fields`
  std::vector<std::int64_t> sample_starts;   // first file of each sample, and after finish() the number of files
  std::vector<std::int64_t> key_starts;      // in `keys`, likewise
  std::string keys;
  std::vector<std::string> fields;

 private:
  std::uint16_t field_id(std::string_view field, std::uint64_t header);

  std::unordered_map<std::string, std::uint16_t> ids_;
  std::vector<std::size_t> last_with_;  // by field, how many samples there were when it last came
  std::string lower_;
  bool is_sorted_ = true;  // then no key can come twice
};

}  // namespace fastshard
