// A rank's share as Python sees it; fastshard.Slice is the class around it.
#include "slice/slice.h"

#include <pybind11/native_enum.h>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace fastshard {

void bind_slice(py::module_& m) {
  py::native_enum<Uneven>(m, "Uneven", "enum.Enum")
      .value("pad", Uneven::kPad)
      .value("drop", Uneven::kDrop)
      .value("keep", Uneven::kKeep)
      .finalize();
  m.def(
      "slice_shape",
      [](std::uint64_t length, std::uint64_t start, std::uint64_t rank, std::uint64_t num_replicas, Uneven uneven) {
        const SliceShape shape = slice_shape(length, start, rank, num_replicas, uneven);
        return py::make_tuple(shape.num_samples, shape.num_padding, shape.total_size);
      },
      py::arg("length"), py::arg("start"), py::arg("rank"), py::arg("num_replicas"), py::arg("uneven"));
}

}  // namespace fastshard
