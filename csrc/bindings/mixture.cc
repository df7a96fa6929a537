// A mixture's positions sorted by source, as Python sees them; fastshard.orders.Mixed is the order around it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "order/mixed.h"

namespace py = pybind11;

namespace fastshard {
namespace {

using TakenPositions = py::array_t<std::uint64_t, py::array::c_style>;

std::unique_ptr<Mixture> make(std::vector<std::uint32_t> shares, std::uint64_t seed, std::uint64_t num_samples) {
  py::gil_scoped_release release;
  return std::make_unique<Mixture>(std::move(shares), seed, num_samples);
}

py::tuple split(const Mixture& mixture, std::uint64_t epoch, const TakenPositions& positions) {
  py::array_t<std::int64_t> where(positions.size());
  py::array_t<std::uint64_t> draws(positions.size());
  py::array_t<std::int64_t> ends(static_cast<py::ssize_t>(mixture.num_sources()));
  const std::uint64_t* at = positions.data();
  const auto count = static_cast<std::uint64_t>(positions.size());
  std::int64_t *where_out = where.mutable_data(), *ends_out = ends.mutable_data();
  std::uint64_t* draws_out = draws.mutable_data();
  {
    py::gil_scoped_release release;
    mixture.split(epoch, at, count, where_out, draws_out, ends_out);
  }
  return py::make_tuple(where, draws, ends);
}

}  // namespace

void bind_mixture(py::module_& m) {
  py::class_<Mixture>(m, "Mixture")
      .def(py::init(&make), py::arg("shares"), py::arg("seed"), py::arg("num_samples"))
      .def("counts", &Mixture::counts)
      .def("split", &split, py::arg("epoch"), py::arg("positions"));
}

}  // namespace fastshard
