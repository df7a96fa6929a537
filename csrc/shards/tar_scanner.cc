#include "shards/tar_scanner.h"

#include <algorithm>
#include <cstring>

namespace fastshard {
namespace {

// Of a name or of extended attributes. No file system has longer ones; a broken size must not become a buffer.
constexpr std::uint64_t kMaxExtended = 1 << 24;

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

}  // namespace

TarScanner::TarScanner(std::uint64_t file_size) : file_size_(file_size) {
  if (file_size == 0) throw TarError(0, "the file is empty");
  want_header(0);
}

void TarScanner::want(State state, std::uint64_t offset, std::uint64_t length) {
  state_ = state;
  position_ = offset;
  length_ = std::min(length, file_size_ - offset);
}

void TarScanner::want_header(std::uint64_t offset) {
  want(offset == file_size_ ? State::kDone : State::kHeader, offset, kTarBlock);
  if (done() && is_extended_) throw TarError(header_, "the file ends after an extended header");
}

bool TarScanner::feed(const unsigned char* bytes) {
  switch (state_) {
    case State::kHeader:
      return on_header(bytes);
    case State::kExtended:
      on_extended(bytes);
      return false;
    case State::kSecondZero:
      has_end_ = length_ == kTarBlock && is_zero_block(bytes);
      state_ = State::kDone;
      return false;
    case State::kDone:
      break;
  }
  return false;
}

bool TarScanner::on_header(const unsigned char* block) {
  if (!is_extended_) header_ = position_;
  if (position_ == 0) {
    const std::string_view compression = compression_of(block, length_);
    // A member's name may begin like anything; a compressed file's bytes are no header.
    if (!compression.empty() && (length_ < kTarBlock || std::memcmp(block + 257, "ustar", 5) != 0)) {
      throw TarError(0, "the file is compressed (" + std::string(compression) +
                            "), and byte ranges of it can't be read; unpack it to a plain tar");
    }
  }
  if (length_ < kTarBlock) throw TarError(position_, "the file ends within a header");
  if (is_zero_block(block)) {
    if (is_extended_) throw TarError(header_, "the archive ends after an extended header");
    const std::uint64_t after = position_ + kTarBlock;
    want(after == file_size_ ? State::kDone : State::kSecondZero, after, kTarBlock);
    return false;
  }
  const TarHeader header = parse_header(block, position_);
  switch (header.type) {
    case '0':
    case '7':  // contiguous: a file like others
      return complete_member(header);
    case 'L':
    case 'x':
    case 'X':  // Solaris's x
    case 'g':
      begin_extended(header);
      return false;
    case 'K':  // the target of a link, which nobody follows
      is_extended_ = true;
      want_header(end_of_data(header.size, "an extended header"));
      return false;
    case 'D':  // GNU's list of what is in a directory
      forget_extended();
      want_header(end_of_data(header.size, quoted(header.name)));
      return false;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case 'V':
      // Whatever size a link, device, directory, pipe or label tells, no data follows.
      forget_extended();
      want_header(position_ + kTarBlock);
      return false;
    case 'S':
      throw TarError(position_, quoted(header.name) + " is a sparse file, which can't be read by byte range");
    default:
      throw TarError(position_, quoted(header.name) + " is of an unknown type, " +
                                    std::to_string(static_cast<unsigned char>(header.type)));
  }
}

bool TarScanner::complete_member(const TarHeader& header) {
  if (long_name_) {
    member_.name = *long_name_;
  } else {
    member_.name.assign(header.prefix);
    if (!header.prefix.empty()) member_.name += '/';
    member_.name += header.name;
  }
  member_.header = header_;
  member_.offset = position_ + kTarBlock;
  member_.size = long_size_.value_or(header.size);
  const std::uint64_t next = end_of_data(member_.size, quoted(member_.name));
  forget_extended();
  want_header(next);
  return true;
}

void TarScanner::forget_extended() {
  is_extended_ = false;
  long_name_.reset();
  long_size_.reset();
}

void TarScanner::begin_extended(const TarHeader& header) {
  if (header.size > kMaxExtended) {
    throw TarError(position_, "an extended header of " + std::to_string(header.size) + " bytes; at most " +
                                  std::to_string(kMaxExtended) + " are read");
  }
  next_ = end_of_data(header.size, "an extended header");
  extended_type_ = header.type;
  if (header.type != 'g') is_extended_ = true;
  if (header.size == 0) return want_header(next_);
  want(State::kExtended, position_ + kTarBlock, header.size);
}

void TarScanner::on_extended(const unsigned char* payload) {
  const std::string_view text(reinterpret_cast<const char*>(payload), static_cast<std::size_t>(length_));
  // Of several the first counts, as in Python's tarfile, and so in WebDataset.
  if (extended_type_ == 'L') {
    if (!long_name_) long_name_ = text.substr(0, text.find('\0'));
  } else {
    PaxRecords records = parse_pax(text, position_);
    if (extended_type_ == 'g') {
      if (!records.empty()) throw TarError(position_, "a pax header that gives all members one path or size");
    } else {
      if (!long_name_) long_name_ = std::move(records.path);
      if (!long_size_) long_size_ = records.size;
    }
  }
  want_header(next_);
}

std::uint64_t TarScanner::end_of_data(std::uint64_t size, const std::string& what) const {
  const std::uint64_t begin = position_ + kTarBlock, left = file_size_ - begin;
  // Not rounded up before it is known to be small.
  if (size <= left) {
    const std::uint64_t padded = (size + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (padded <= left) return begin + padded;
  }
  throw TarError(position_, what + " is cut off: it has " + std::to_string(size) + " bytes from offset " +
                                std::to_string(begin) + " on, and the file ends at " + std::to_string(file_size_) +
                                (size <= left ? ", before the end of its last block" : ""));
}

}  // namespace fastshard
