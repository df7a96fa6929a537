// TarScanner: the members of a tar archive, from its headers alone. It reads nothing itself: it says which bytes it
// wants next and is fed these, so that preads, a mapping and range requests over a network all drive the same machine.
//
// Per member it wants 512 bytes, and as much again as extended headers take where there are some; never the data.
// ustar, its ancestors, GNU's long names and base 256, and pax. Links, directories and devices are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shards/tar_header.h"

namespace fastshard {

class TarScanner {
 public:
  struct Want {
    std::uint64_t offset, length;
  };
  struct Member {
    std::string name;          // as bytes
    std::uint64_t header = 0;  // offset of its header
    std::uint64_t offset = 0;  // of its data
    std::uint64_t size = 0;
  };

  // file_size is below 2^63. Throws a TarError for an empty file, as feed does for all else that can't be read.
  explicit TarScanner(std::uint64_t file_size);

  bool done() const { return state_ == State::kDone; }
  // Of a scanner that isn't done: bytes within the file, at least one. The offset only ever grows.
  Want wants() const { return {position_, length_}; }
  // Takes the bytes that it wants. True if a regular file's header is now complete: then member() is that file.
  bool feed(const unsigned char* bytes);
  const Member& member() const { return member_; }
  // Of one that is done: whether the archive ended as it should, with two blocks of zeros.
  bool has_end() const { return has_end_; }

 private:
  enum class State { kHeader, kExtended, kSecondZero, kDone };

  bool on_header(const unsigned char* block);
  void on_extended(const unsigned char* payload);
  bool complete_member(const TarHeader& header);
  void begin_extended(const TarHeader& header);
  void forget_extended();
  // Where the data of a member ends, with its padding; checked to be in the file.
  std::uint64_t end_of_data(std::uint64_t size, const std::string& what) const;
  void want_header(std::uint64_t offset);
  void want(State state, std::uint64_t offset, std::uint64_t length);

  std::uint64_t file_size_, position_ = 0, length_ = 0;
  std::uint64_t header_ = 0;  // of the block that was read last, or the first of its extended ones
  std::uint64_t next_ = 0;    // header after the extended one that is being read
  State state_ = State::kHeader;
  char extended_type_ = 0;
  bool has_end_ = false, is_extended_ = false;
  std::optional<std::string> long_name_;  // these two for the next member
  std::optional<std::uint64_t> long_size_;
  Member member_;
};

}  // namespace fastshard
