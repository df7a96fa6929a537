// Ids per second of the ledger: `make core-bench`, or build/core-bench/core_bench
// --benchmark_filter='Fingerprint|Coverage'
#include <benchmark/benchmark.h>

#include <vector>

#include "ledger/coverage.h"
#include "ledger/fingerprint.h"
#include "order/permutation.h"

namespace fastshard {
namespace {

std::vector<std::int64_t> shuffled(std::int64_t num_ids, std::uint64_t start, std::uint64_t count) {
  std::vector<std::int64_t> ids(count);
  Shuffled(static_cast<std::uint64_t>(num_ids), 1).fill(0, {start, count, 1}, ids.data());
  return ids;
}

// range(0): ids a call.
void BM_Fingerprint(benchmark::State& state) {
  const auto ids = shuffled(1'000'000'000, 0, static_cast<std::uint64_t>(state.range(0)));
  Fingerprint sum;
  for (auto _ : state) {
    sum.add(ids.data(), ids.size());
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void BM_FingerprintRange(benchmark::State& state) {
  const auto count = static_cast<std::uint64_t>(state.range(0));
  Fingerprint sum;
  for (auto _ : state) {
    sum.add_range(1, 1 + count);
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// range(0): ids that there are; 65,536 a call, until most have come.
void BM_Coverage(benchmark::State& state) {
  const std::int64_t num_ids = state.range(0);
  Coverage coverage(static_cast<std::uint64_t>(num_ids));
  std::uint64_t start = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto ids = shuffled(num_ids, start, 65536);
    start = (start + 65536) % static_cast<std::uint64_t>(num_ids - 65536);
    state.ResumeTiming();
    coverage.add(ids.data(), ids.size());
  }
  state.SetItemsProcessed(state.iterations() * 65536);
}

BENCHMARK(BM_Fingerprint)->Arg(32)->Arg(4096)->Arg(10'000'000);
BENCHMARK(BM_FingerprintRange)->Arg(10'000'000);
BENCHMARK(BM_Coverage)->Arg(1'000'000)->Arg(1'000'000'000)->Iterations(2000);

}  // namespace
}  // namespace fastshard
