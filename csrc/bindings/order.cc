// Orders as Python sees them: one base class with `indices`, and a row for each order's constructor.
#include <pybind11/numpy.h>

#include "bindings/bindings.h"
#include "order/permutation.h"
#include "order/sequential.h"
#include "order/torch_permutation.h"
#include "simd/select.h"

namespace py = pybind11;

namespace fastshard {
namespace {

py::array_t<std::int64_t> indices(const Order& order, std::uint64_t epoch, std::uint64_t start, std::uint64_t count,
                                  std::uint64_t step) {
  py::array_t<std::int64_t> ids(static_cast<py::ssize_t>(count));
  std::int64_t* out = ids.mutable_data();
  py::gil_scoped_release release;
  order.fill(epoch, {start, count, step}, out);
  return ids;
}

std::uint64_t position(const Bijection& order, std::uint64_t epoch, std::uint64_t id) {
  py::gil_scoped_release release;
  return order.position(epoch, id);
}

}  // namespace

void bind_orders(py::module_& m) {
  py::class_<Order>(m, "Order")
      .def("indices", &indices, py::arg("epoch"), py::arg("start"), py::arg("count"), py::arg("step"));
  py::class_<Bijection, Order>(m, "Bijection").def("position", &position, py::arg("epoch"), py::arg("id"));
  py::class_<Sequential, Bijection>(m, "Sequential").def(py::init<>());
  py::class_<Shuffled, Bijection>(m, "Shuffled")
      .def(py::init<std::uint64_t, std::uint64_t>(), py::arg("n"), py::arg("seed"));
  py::class_<TorchShuffled, Bijection>(m, "TorchShuffled")
      .def(py::init<std::uint64_t, std::uint64_t>(), py::arg("n"), py::arg("seed"));
  // The first call chooses; a FASTSHARD_SIMD that can't be obeyed fails the import, not a training job.
  m.attr("instruction_set") = kernels().name;
  py::list names;
  for (const Kernels* set : available_kernels()) names.append(set->name);
  m.attr("instruction_sets") = py::tuple(names);
}

}  // namespace fastshard
