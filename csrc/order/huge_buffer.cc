#include "order/huge_buffer.h"

#include <algorithm>
#include <fstream>
#include <limits>

#if defined(__unix__) || defined(__APPLE__)
#define FASTSHARD_HAS_MMAP 1
#include <sys/mman.h>
#endif

namespace fastshard {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

std::uint64_t number_in(const char* path) {
  std::uint64_t value = 0;
  return std::ifstream(path) >> value ? value : kUnknown;  // "max" and a missing file are both no limit
}

// Bytes that can be had without swapping or being killed. Linux hands out more address space than it has memory, so
// a successful mmap says nothing; what it would say too late is in these files.
std::uint64_t available_bytes() {
  std::uint64_t available = kUnknown;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name, unit; meminfo >> name;) {
    std::uint64_t kilobytes = 0;
    if (name == "MemAvailable:" && meminfo >> kilobytes) available = kilobytes * 1024;
    std::getline(meminfo, unit);
  }
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit != kUnknown) {
    const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    available = std::min(available, used < limit ? limit - used : 0);
  }
  return available;
}

[[noreturn]] void throw_too_large(std::uint64_t count, std::uint64_t width) {
  const std::uint64_t available = available_bytes();
  // Entries of a permutation or of an alias table: one a sample either way.
  std::string message = "this order of " + std::to_string(count) + " samples takes " + std::to_string(width) +
                        " bytes a sample, which is ";
  message += count > kUnknown / width ? "more than 2^64 bytes" : std::to_string(count * width) + " bytes";
  if (available != kUnknown) message += ", and " + std::to_string(available) + " bytes are available";
  throw OutOfMemory(message);
}

}  // namespace

HugeBuffer::HugeBuffer(std::uint64_t count, std::uint64_t width) {
  const std::uint64_t largest = std::numeric_limits<std::ptrdiff_t>::max();
  if (count > largest / width) throw_too_large(count, width);
  // Opening /proc costs more than a small shuffle, and a small one always fits.
  constexpr std::uint64_t kAlwaysFits = 1 << 24;
  bytes_ = static_cast<std::size_t>(count * width);
  if (bytes_ > kAlwaysFits && bytes_ > available_bytes()) throw_too_large(count, width);
#ifdef FASTSHARD_HAS_MMAP
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) throw_too_large(count, width);
#ifdef MADV_HUGEPAGE
  // Random access over small pages misses the TLB at every swap. Refusal only costs speed.
  madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
#else
  data_ = ::operator new(bytes_, std::nothrow);
  if (!data_) throw_too_large(count, width);
#endif
}

HugeBuffer::~HugeBuffer() {
#ifdef FASTSHARD_HAS_MMAP
  munmap(data_, bytes_);
#else
  ::operator delete(data_);
#endif
}

}  // namespace fastshard
