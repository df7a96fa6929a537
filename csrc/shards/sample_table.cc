#include "shards/sample_table.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "shards/tar_header.h"

namespace fastshard {
namespace {

constexpr std::size_t kMaxFields = 1 << 16;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// WebDataset keeps such names for itself.
bool is_meta(std::string_view name) {
  if (name.substr(0, 2) != "__") return false;
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos) {
    // Its two patterns differ: one takes "__", the other a line break after the end.
    if (ends_with(name, "__")) return true;
    if (!ends_with(name, "\n")) return false;
    name.remove_suffix(1);
  }
  const std::string_view first = name.substr(0, slash);
  return first.size() >= 4 && ends_with(first, "__");
}

bool is_reserved(std::string_view field) {
  return field == "__key__" || field == "__url__" || field == "__bad__" || field == "__local_path__";
}

}  // namespace

std::size_t key_length(std::string_view name) {
  constexpr auto kNone = std::string_view::npos;
  if (is_meta(name)) return kNone;
  const std::size_t slash = name.rfind('/');
  const std::size_t dot = name.find('.', slash == kNone ? 0 : slash + 1);
  if (dot == kNone || dot == 0) return kNone;
  // WebDataset's pattern is ^((?:.*/|)[^.]+)[.]([^/]*)$, where `.*` stops at a line break. What [^.]+ matches begins
  // after a slash or at 0, mostly in the last component; where that begins with its dot, in the one before.
  std::size_t start = name.substr(0, std::min(name.find('\n'), dot - 1)).rfind('/');
  start = start == kNone ? 0 : start + 1;
  return name.substr(start, dot - start).find('.') == kNone ? dot : kNone;
}

void SampleTable::add(std::string_view name, std::uint64_t header, std::uint64_t offset, std::uint64_t size) {
  const std::size_t dot = key_length(name);
  if (dot == std::string_view::npos) return;
  const std::string_view new_key = name.substr(0, dot);
  const std::size_t before = key_starts.size();
  if (before == 0 || new_key != key(before - 1)) {
    if (before && new_key <= key(before - 1)) is_sorted_ = false;
    sample_starts.push_back(static_cast<std::int64_t>(offsets.size()));
    key_starts.push_back(static_cast<std::int64_t>(keys.size()));
    keys += new_key;
  }
  const std::uint16_t id = field_id(name.substr(dot + 1), header);
  if (last_with_[id] == key_starts.size()) {
    throw TarError(header, "field '" + fields[id] + "' comes a second time in the sample");
  }
  last_with_[id] = key_starts.size();
  offsets.push_back(static_cast<std::int64_t>(offset));
  sizes.push_back(static_cast<std::int64_t>(size));
  field_ids.push_back(id);
}

std::uint16_t SampleTable::field_id(std::string_view field, std::uint64_t header) {
  lower_.assign(field);
  for (char& c : lower_) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto found = ids_.find(lower_);
  if (found != ids_.end()) return found->second;
  if (is_reserved(lower_)) throw TarError(header, "field '" + lower_ + "' is a name that WebDataset uses itself");
  if (fields.size() == kMaxFields) throw TarError(header, "more than 65,536 different fields in one shard");
  const auto id = static_cast<std::uint16_t>(fields.size());
  ids_.emplace(lower_, id);
  fields.push_back(lower_);
  last_with_.push_back(0);
  return id;
}

std::string_view SampleTable::key(std::size_t sample) const {
  const auto begin = static_cast<std::size_t>(key_starts[sample]);
  const auto end = sample + 1 < key_starts.size() ? static_cast<std::size_t>(key_starts[sample + 1]) : keys.size();
  return std::string_view(keys).substr(begin, end - begin);
}

void SampleTable::finish() {
  if (!is_sorted_) {
    std::vector<std::size_t> by_key(key_starts.size());
    std::iota(by_key.begin(), by_key.end(), 0);
    std::sort(by_key.begin(), by_key.end(), [this](std::size_t a, std::size_t b) {
      const int order = key(a).compare(key(b));
      return order ? order < 0 : a < b;
    });
    const auto twice = std::adjacent_find(by_key.begin(), by_key.end(),
                                          [this](std::size_t a, std::size_t b) { return key(a) == key(b); });
    if (twice != by_key.end()) {
      const auto first_file = [this](std::size_t sample) { return static_cast<std::size_t>(sample_starts[sample]); };
      throw TarError(static_cast<std::uint64_t>(offsets[first_file(twice[1])]),
                     "key '" + std::string(key(*twice)) +
                         "' comes a second time, after other samples; first it is at " +
                         std::to_string(offsets[first_file(*twice)]) + ". A sample's files must be neighbours");
    }
  }
  sample_starts.push_back(static_cast<std::int64_t>(offsets.size()));
  key_starts.push_back(static_cast<std::int64_t>(keys.size()));
}

}  // namespace fastshard
