// One tar header and what extended headers say: bytes to numbers and names. Nothing here reads or remembers.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fastshard {

constexpr std::uint64_t kTarBlock = 512;

// What is wrong with an archive, and at which byte of it.
class TarError : public std::invalid_argument {
 public:
  TarError(std::uint64_t offset, const std::string& what) : std::invalid_argument(what), offset(offset) {}
  std::uint64_t offset;
};

struct TarHeader {
  std::string_view name, prefix;  // into the block; the prefix is empty where the format has none
  std::uint64_t size = 0;
  char type = '0';
};

// What a pax header says of the member after it.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
  bool empty() const { return !path && !size; }
};

// Both throw a TarError with `offset`, that of the block or payload in the archive.
TarHeader parse_header(const unsigned char* block, std::uint64_t offset);
PaxRecords parse_pax(std::string_view payload, std::uint64_t offset);

bool is_zero_block(const unsigned char* block);
// "gzip" and the like, if a file that begins so is one; else an empty string.
std::string_view compression_of(const unsigned char* bytes, std::uint64_t n);

}  // namespace fastshard
