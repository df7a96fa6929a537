// Orders as Python sees them: one base class with `indices`, and a row for each order's constructor.
#include <pybind11/numpy.h>

#include "bindings/bindings.h"
#include "order/blocks.h"
#include "order/permutation.h"
#include "order/sequential.h"
#include "order/torch_permutation.h"
#include "order/waiting.h"
#include "order/weighted.h"
#include "simd/select.h"

namespace py = pybind11;

namespace fastshard {
namespace {

// Lets Ctrl-C end a wait. Called without the GIL.
void check_signals() {
  py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

py::array_t<std::int64_t> indices(const Order& order, std::uint64_t epoch, std::uint64_t start, std::uint64_t count,
                                  std::uint64_t step) {
  py::array_t<std::int64_t> ids(static_cast<py::ssize_t>(count));
  std::int64_t* out = ids.mutable_data();
  py::gil_scoped_release release;
  order.fill(epoch, {start, count, step}, out);
  return ids;
}

using TakenPositions = py::array_t<std::uint64_t, py::array::c_style>;

py::array_t<std::int64_t> take(const Order& order, std::uint64_t epoch, const TakenPositions& positions) {
  py::array_t<std::int64_t> ids(positions.size());
  const std::uint64_t* at = positions.data();
  const auto count = static_cast<std::uint64_t>(positions.size());
  std::int64_t* out = ids.mutable_data();
  py::gil_scoped_release release;
  order.take(epoch, at, count, out);
  return ids;
}

std::uint64_t position(const Bijection& order, std::uint64_t epoch, std::uint64_t id) {
  py::gil_scoped_release release;
  return order.position(epoch, id);
}

using Sizes = py::array_t<std::int64_t, py::array::c_style>;

std::unique_ptr<BlockShuffled> make_blocks(const Sizes& sizes, std::uint64_t seed, std::uint64_t window) {
  return std::make_unique<BlockShuffled>(sizes.data(), static_cast<std::uint64_t>(sizes.size()), seed, window);
}

py::array_t<std::int64_t> blocks_of(const BlockShuffled& order, std::uint64_t epoch, std::uint64_t start,
                                    std::uint64_t stop) {
  std::vector<std::int64_t> blocks;
  {
    py::gil_scoped_release release;
    blocks = order.blocks_of(epoch, start, stop);
  }
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(blocks.size()), blocks.data());
}

using Weights = py::array_t<double, py::array::c_style>;

// Calls make(weights, how many they are) without the GIL: tables of millions take their time.
template <class Make>
auto made_from(const Weights& weights, Make make) {
  const double* data = weights.data();
  const auto n = static_cast<std::uint64_t>(weights.size());
  py::gil_scoped_release release;
  return make(data, n);
}

template <class Alias>
void bind_weighted_draws(py::module_& m, const char* name) {
  using Draws = WeightedDraws<Alias>;
  const auto make = [](const Weights& weights, std::uint64_t seed) {
    return made_from(weights, [&](auto data, auto n) { return std::make_unique<Draws>(data, n, seed); });
  };
  py::class_<Draws, Order>(m, name).def(py::init(make), py::arg("weights"), py::arg("seed"));
}

}  // namespace

void bind_orders(py::module_& m) {
  while_waiting = &check_signals;
  py::class_<Order>(m, "Order")
      .def("indices", &indices, py::arg("epoch"), py::arg("start"), py::arg("count"), py::arg("step"))
      .def("prepare", &Order::prepare, py::arg("epoch"), py::call_guard<py::gil_scoped_release>())
      .def("take", &take, py::arg("epoch"), py::arg("positions"));
  py::class_<Bijection, Order>(m, "Bijection").def("position", &position, py::arg("epoch"), py::arg("id"));
  py::class_<Sequential, Bijection>(m, "Sequential").def(py::init<>());
  py::class_<Shuffled, Bijection>(m, "Shuffled")
      .def(py::init<std::uint64_t, std::uint64_t>(), py::arg("n"), py::arg("seed"));
  py::class_<TorchShuffled, Bijection>(m, "TorchShuffled")
      .def(py::init<std::uint64_t, std::uint64_t>(), py::arg("n"), py::arg("seed"));
  py::class_<BlockShuffled, Bijection>(m, "BlockShuffled")
      .def(py::init(&make_blocks), py::arg("sizes"), py::arg("seed"), py::arg("window"))
      .def("blocks_of", &blocks_of, py::arg("epoch"), py::arg("start"), py::arg("stop"));
  bind_weighted_draws<std::uint32_t>(m, "WeightedDraws");
  bind_weighted_draws<std::uint64_t>(m, "WideWeightedDraws");
  const auto make_subset = [](const Weights& weights, std::uint64_t count, std::uint64_t seed) {
    return made_from(weights,
                     [&](auto data, auto n) { return std::make_unique<WeightedSubset>(data, n, count, seed); });
  };
  py::class_<WeightedSubset, Order>(m, "WeightedSubset")
      .def(py::init(make_subset), py::arg("weights"), py::arg("count"), py::arg("seed"));
  // The first call chooses; a FASTSHARD_SIMD that can't be obeyed fails the import, not a training job.
  m.attr("instruction_set") = kernels().name;
  py::list names;
  for (const Kernels* set : available_kernels()) names.append(set->name);
  m.attr("instruction_sets") = py::tuple(names);
}

}  // namespace fastshard
