#include "shards/tar_indexer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

namespace fastshard {
namespace {

// A header, a label's few bytes and the next header: one pread instead of two for every sample that has a label. Whole
// pages were slower, for what they copy. Where files are small, a longer read serves many of them.
constexpr std::uint64_t kFew = 3 * kTarBlock, kMany = 1 << 16;
constexpr std::uint64_t kSmall = 4096;  // from one header to the next, on average

// Reads n bytes, or fewer at the end of the file.
std::uint64_t read_at(int file, std::uint64_t offset, unsigned char* out, std::uint64_t n) {
  std::uint64_t done = 0;
  while (done < n) {
    const auto got = pread(file, out + done, static_cast<std::size_t>(n - done), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "pread");
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

// Offset and key go into the text: it is all that comes through to Python.
[[noreturn]] void fail(const TarError& error, const std::string& where = "") {
  throw TarError(error.offset, "offset " + std::to_string(error.offset) + where + ": " + error.what());
}

}  // namespace

TarIndexer::TarIndexer(std::uint64_t file_size) try : file_size_(file_size), scanner_(file_size) {
} catch (const TarError& error) {
  fail(error);
}

std::optional<TarScanner::Want> TarIndexer::wants() const {
  if (scanner_.done()) return std::nullopt;
  return scanner_.wants();
}

void TarIndexer::advance(std::uint64_t offset, const unsigned char* bytes, std::uint64_t n) try {
  while (!scanner_.done()) {
    const auto [from, length] = scanner_.wants();
    if (from < offset || from - offset > n || n - (from - offset) < length) return;
    if (!scanner_.feed(bytes + (from - offset))) continue;
    const TarScanner::Member& member = scanner_.member();
    samples_.add(member.name, member.header, member.offset, member.size);
  }
} catch (const TarError& error) {
  const std::size_t samples = samples_.key_starts.size();
  fail(error, samples ? ", at key '" + std::string(samples_.key(samples - 1)) + "'" : "");
}

void TarIndexer::feed(std::uint64_t offset, const unsigned char* bytes, std::uint64_t n) {
  if (scanner_.done()) return;
  advance(offset, bytes, n);
  if (!scanner_.done()) return;
  try {
    samples_.finish();
  } catch (const TarError& error) {
    fail(error);
  }
}

void TarIndexer::read(int file) {
  std::vector<unsigned char> buffer(kMany);
  while (const auto want = wants()) {
    const std::uint64_t files = samples_.offsets.size();
    const std::uint64_t ahead = files && want->offset / files < kSmall ? kMany : kFew;
    const std::uint64_t n = std::min(std::max(ahead, want->length), file_size_ - want->offset);
    if (n > buffer.size()) buffer.resize(n);
    if (read_at(file, want->offset, buffer.data(), n) < n) {
      fail(TarError(want->offset, "the file is shorter than it was: it changed while it was read"));
    }
    feed(want->offset, buffer.data(), n);
  }
}

}  // namespace fastshard
