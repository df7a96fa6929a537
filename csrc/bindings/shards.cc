// TarIndexer as Python sees it; fastshard.webdataset is around it.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "shards/tar_indexer.h"

namespace py = pybind11;

namespace fastshard {
namespace {

// Names in an archive are bytes; those that are no UTF-8 must not lose the error that quotes them.
void raise_tar_error(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const TarError& error) {
    const std::string what = error.what();
    const auto text = py::reinterpret_steal<py::object>(
        PyUnicode_DecodeUTF8(what.data(), static_cast<py::ssize_t>(what.size()), "backslashreplace"));
    if (text) PyErr_SetObject(PyExc_ValueError, text.ptr());
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  }
}

void feed(TarIndexer& indexer, std::uint64_t offset, const py::buffer& data) {
  const py::buffer_info view = data.request();
  if (view.ndim != 1 || view.itemsize != 1 || (view.size && view.strides[0] != 1)) {
    throw py::type_error("data must be contiguous bytes");
  }
  py::gil_scoped_release release;
  indexer.feed(offset, static_cast<const unsigned char*>(view.ptr), static_cast<std::uint64_t>(view.size));
}

template <class Number>
py::array_t<Number> array(const std::vector<Number>& numbers) {
  return py::array_t<Number>(static_cast<py::ssize_t>(numbers.size()), numbers.data());
}

py::tuple arrays(const TarIndexer& indexer) {
  if (indexer.wants()) throw py::value_error("the archive has not been read to its end");
  const SampleTable& samples = indexer.samples();
  std::vector<py::bytes> fields(samples.fields.begin(), samples.fields.end());
  return py::make_tuple(array(samples.offsets), array(samples.sizes), array(samples.sample_starts),
                        array(samples.key_starts), array(samples.field_ids), py::bytes(samples.keys), fields);
}

}  // namespace

void bind_shards(py::module_& m) {
  py::register_exception_translator(&raise_tar_error);
  py::class_<TarIndexer>(m, "TarIndexer")
      .def(py::init<std::uint64_t>(), py::arg("file_size"))
      .def("wants",
           [](const TarIndexer& indexer) -> py::object {
             const auto want = indexer.wants();
             if (!want) return py::none();
             return py::make_tuple(want->offset, want->length);
           })
      .def("feed", &feed, py::arg("offset"), py::arg("data"))
      .def("read", &TarIndexer::read, py::arg("file"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("has_end", &TarIndexer::has_end)
      .def("arrays", &arrays);
}

}  // namespace fastshard
