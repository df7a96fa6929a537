// Ids per second of each order and instruction set, for whoever tunes the kernels: `make core-bench`, then for example
// FASTSHARD_SIMD=portable build/core-bench/core_bench --benchmark_filter=Shuffled
#include <benchmark/benchmark.h>

#include <atomic>
#include <vector>

#include "order/fisher_yates.h"
#include "order/huge_buffer.h"
#include "order/permutation.h"
#include "order/sequential.h"
#include "order/torch_permutation.h"
#include "simd/select.h"

namespace fastshard {
namespace {

// range(0): size of the order; range(1): ids a call; range(2): step.
void fill(benchmark::State& state, const Order& order) {
  const auto count = static_cast<std::uint64_t>(state.range(1)), step = static_cast<std::uint64_t>(state.range(2));
  std::vector<std::int64_t> ids(count);
  for (auto _ : state) {
    order.fill(1, {0, count, step}, ids.data());
    benchmark::DoNotOptimize(ids.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
  state.SetLabel(kernels().name);
}

void BM_Sequential(benchmark::State& state) { fill(state, Sequential()); }
void BM_Shuffled(benchmark::State& state) { fill(state, Shuffled(static_cast<std::uint64_t>(state.range(0)), 1)); }

// A whole epoch, to its first id.
void BM_TorchShuffled(benchmark::State& state) {
  std::uint64_t epoch = 0;
  const TorchShuffled order(static_cast<std::uint64_t>(state.range(0)), 1);
  for (auto _ : state) {
    std::int64_t id = 0;
    order.fill(epoch++, {0, 1, 1}, &id);
    benchmark::DoNotOptimize(id);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// range(0): samples; range(1): threads.
void BM_TorchRandperm(benchmark::State& state) {
  const auto n = static_cast<std::uint64_t>(state.range(0));
  const HugeBuffer buffer(n, 4);
  const std::atomic<bool> cancelled{false};
  std::uint64_t seed = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        torch_randperm(buffer.as<std::uint32_t>(), n, seed++, cancelled, static_cast<unsigned>(state.range(1))));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t n : {10'000LL, 16'385LL, 1'000'000LL, 1'000'000'000LL, 1'000'000'000'000LL}) {
    benchmark->Args({n, 4096, 1});
  }
  benchmark->Args({1'000'000'000, 10'000'000, 1})->Args({1'000'000'000, 4096, 8});
}

BENCHMARK(BM_Sequential)->Args({1, 4096, 1})->Args({1, 10'000'000, 1});
BENCHMARK(BM_Shuffled)->Apply(sizes);
BENCHMARK(BM_TorchShuffled)->Arg(1'000'000)->Arg(10'000'000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_TorchRandperm)
    ->ArgsProduct({{1'000'000, 10'000'000}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fastshard

BENCHMARK_MAIN();
