// Memory for a permutation or an alias table of up to billions of entries: huge pages where the system has them, and an
// error with the size in it, before anything is touched, where it does not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace fastshard {

// Becomes Python's MemoryError, with this text.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

// Uninitialised memory for `count` entries of `width` bytes, aligned to a page. Throws OutOfMemory.
class HugeBuffer {
 public:
  HugeBuffer(std::uint64_t count, std::uint64_t width);
  ~HugeBuffer();
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  template <class Entry>
  Entry* as() const {
    return static_cast<Entry*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fastshard
