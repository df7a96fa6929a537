#include "shards/tar_header.h"

#include <algorithm>
#include <cstring>

namespace fastshard {
namespace {

constexpr std::uint64_t kMaxSize = INT64_MAX;

// Up to the first NUL: a field that is full has none.
std::string_view text(const unsigned char* field, std::size_t width) {
  const auto* begin = reinterpret_cast<const char*>(field);
  return {begin, strnlen(begin, width)};
}

std::uint64_t base256(const unsigned char* field, std::size_t width, const char* what, std::uint64_t offset) {
  if (field[0] & 0x40) throw TarError(offset, std::string("the header's ") + what + " is negative");
  std::uint64_t value = field[0] & 0x3f;
  for (std::size_t i = 1; i < width; ++i) {
    if (value > kMaxSize >> 8) throw TarError(offset, std::string("the header's ") + what + " is 2^63 or more");
    value = value << 8 | field[i];
  }
  return value;
}

// Octal digits between blanks, or GNU's base 256, which the highest bit announces.
std::uint64_t number(const unsigned char* field, std::size_t width, const char* what, std::uint64_t offset) {
  if (field[0] & 0x80) return base256(field, width, what, offset);
  const std::string_view digits = text(field, width);
  std::size_t i = 0;
  std::uint64_t value = 0;
  while (i < digits.size() && digits[i] == ' ') ++i;
  // Twelve octal digits are 36 bits: nothing to overflow.
  for (; i < digits.size() && digits[i] >= '0' && digits[i] <= '7'; ++i) {
    value = value * 8 + static_cast<std::uint64_t>(digits[i] - '0');
  }
  while (i < digits.size() && digits[i] == ' ') ++i;
  if (i == digits.size()) return value;
  throw TarError(offset, std::string("the header's ") + what + " is no octal number");
}

void check_sum(const unsigned char* block, std::uint64_t offset) {
  const std::uint64_t said = number(block + 148, 8, "checksum", offset);
  std::uint32_t sum = 0, high = 0;  // narrow, for vectors
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    sum += block[i];
    high += block[i] >> 7;
  }
  // The sum counts its own field as blanks.
  for (std::size_t i = 148; i < 156; ++i) {
    sum += std::uint32_t{' '} - block[i];
    high -= std::uint32_t{block[i]} >> 7;
  }
  // Some old writers took bytes as signed: each with its high bit set then counts 256 less.
  if (said == sum || said == sum - 256 * high) return;
  throw TarError(offset, "the header's checksum should be " + std::to_string(sum) + ", and is " + std::to_string(said));
}

}  // namespace

TarHeader parse_header(const unsigned char* block, std::uint64_t offset) {
  check_sum(block, offset);
  TarHeader header;
  header.name = text(block, 100);
  header.size = number(block + 124, 12, "size", offset);
  header.type = static_cast<char>(block[156]);
  // GNU's own format ("ustar  ") keeps times where POSIX has the prefix, and the oldest has nothing.
  if (std::memcmp(block + 257, "ustar", 6) == 0) header.prefix = text(block + 345, 155);
  // The oldest tar knows directories by their name alone.
  if (header.type == '\0') header.type = !header.name.empty() && header.name.back() == '/' ? '5' : '0';
  return header;
}

PaxRecords parse_pax(std::string_view payload, std::uint64_t offset) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto broken = [&] { return TarError(offset, "a record of the pax header is malformed"); };
  PaxRecords records;
  // A record is "length key=value\n", and its length counts itself.
  while (!payload.empty() && payload.front() != '\0') {
    std::size_t i = 0, length = 0;
    for (; i < payload.size() && is_digit(payload[i]) && length <= payload.size(); ++i) {
      length = length * 10 + static_cast<std::size_t>(payload[i] - '0');
    }
    if (length > payload.size() || length < i + 3 || payload[i] != ' ' || payload[length - 1] != '\n') throw broken();
    const std::string_view record = payload.substr(i + 1, length - i - 2);
    payload.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) throw broken();
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key.substr(0, 11) == "GNU.sparse.") throw TarError(offset, "a sparse file, which can't be read by byte range");
    if (key == "path") {
      if (value.find('\0') != std::string_view::npos) throw broken();
      records.path = value.substr(0, value.find_last_not_of('/') + 1);
    } else if (key == "size") {
      std::uint64_t size = 0;
      if (value.empty() || !std::all_of(value.begin(), value.end(), is_digit)) throw broken();
      for (char c : value) {
        if (size > (kMaxSize - 9) / 10) throw TarError(offset, "the pax header's size is too large");
        size = size * 10 + static_cast<std::uint64_t>(c - '0');
      }
      records.size = size;
    }
  }
  return records;
}

bool is_zero_block(const unsigned char* block) {
  return block[0] == 0 && std::memcmp(block, block + 1, kTarBlock - 1) == 0;
}

std::string_view compression_of(const unsigned char* bytes, std::uint64_t n) {
  using namespace std::string_view_literals;
  const std::string_view start(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
  for (const auto& [magic, name] : {std::pair{"\x1f\x8b"sv, "gzip"sv},
                                    {"BZh"sv, "bzip2"sv},
                                    {"\xfd\x37zXZ\0"sv, "xz"sv},
                                    {"\x28\xb5\x2f\xfd"sv, "zstd"sv},
                                    {"\x04\x22\x4d\x18"sv, "lz4"sv},
                                    {"PK\x03\x04"sv, "zip"sv}}) {
    if (start.substr(0, magic.size()) == magic) return name;
  }
  return {};
}

}  // namespace fastshard
