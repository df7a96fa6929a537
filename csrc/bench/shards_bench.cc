// Files per second of indexing a shard, beside preads of its headers alone: build/core-bench/core_bench
// --benchmark_filter=Tar
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <vector>

#include "shards/tar_indexer.h"
#include "tests/tar_in_memory.h"

namespace fastshard {
namespace {

// Samples of an image of about `size` bytes and a label of a few, in a file that is gone when it is closed.
struct Shard {
  Shard(std::uint64_t samples, std::uint64_t image) : file(std::tmpfile()) {
    std::mt19937 random(1);
    for (std::uint64_t i = 0; i < samples; ++i) {
      char key[24];
      std::snprintf(key, sizeof key, "%08llu", static_cast<unsigned long long>(i));
      for (const bool is_image : {true, false}) {
        headers.push_back(size);
        const std::string data(is_image ? image / 2 + random() % image : 2, 'x');
        const std::string member = tar_member(key + std::string(is_image ? ".jpg" : ".cls"), data);
        size += std::fwrite(member.data(), 1, member.size(), file);
      }
    }
    size += std::fwrite(tar_end().data(), 1, 2 * kTarBlock, file);
    std::fflush(file);
  }
  ~Shard() { std::fclose(file); }

  std::FILE* file;
  std::uint64_t size = 0;
  std::vector<std::uint64_t> headers;
};

// range(0): samples of the shard; range(1): bytes of an image, on average.
const Shard& shard_of(const benchmark::State& state) {
  static std::unique_ptr<Shard> shard;
  static std::int64_t samples = 0, image = 0;
  if (samples != state.range(0) || image != state.range(1)) {
    samples = state.range(0);
    image = state.range(1);
    shard = std::make_unique<Shard>(samples, image);
  }
  return *shard;
}

void BM_TarIndex(benchmark::State& state) {
  const Shard& shard = shard_of(state);
  for (auto _ : state) {
    TarIndexer indexer(shard.size);
    indexer.read(fileno(shard.file));
    benchmark::DoNotOptimize(indexer.samples().offsets.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(shard.headers.size()));
}

// The least that reading headers costs one by one: somebody else has found out where they are.
void BM_TarHeaderPreads(benchmark::State& state) {
  const Shard& shard = shard_of(state);
  char block[kTarBlock];
  for (auto _ : state) {
    for (const std::uint64_t header : shard.headers) {
      if (pread(fileno(shard.file), block, kTarBlock, static_cast<off_t>(header)) != kTarBlock) std::abort();
      benchmark::DoNotOptimize(block[0]);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(shard.headers.size()));
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t image : {1'000, 4'000, 16'000, 100'000}) bench->Args({200'000'000 / (image + 2'000), image});
}

BENCHMARK(BM_TarIndex)->Apply(sizes);
BENCHMARK(BM_TarHeaderPreads)->Apply(sizes);

}  // namespace
}  // namespace fastshard
