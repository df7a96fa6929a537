// Fingerprint and Coverage as Python sees them; fastshard.Ledger is the class around them.
#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "bindings/bindings.h"
#include "bindings/given_ids.h"
#include "ledger/coverage.h"
#include "ledger/fingerprint.h"

namespace py = pybind11;

namespace fastshard {
namespace {

// An array is added without the GIL, and a second thread may come meanwhile.
struct LockedCoverage : Coverage {
  using Coverage::Coverage;
  mutable std::mutex mutex;
};

void check_stretch(const Coverage& coverage, std::uint64_t start, std::uint64_t stop) {
  if (start <= stop && stop <= coverage.num_ids()) return;
  throw py::value_error("[start, stop) must be within [0, " + std::to_string(coverage.num_ids()) + "), got [" +
                        std::to_string(start) + ", " + std::to_string(stop) + ")");
}

py::array_t<std::int32_t> counts(const LockedCoverage& coverage, std::uint64_t start, std::uint64_t stop) {
  check_stretch(coverage, start, stop);
  py::array_t<std::int32_t> out(static_cast<py::ssize_t>(stop - start));
  std::int32_t* data = out.mutable_data();
  py::gil_scoped_release release;
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  coverage.counts(start, stop - start, data);
  return out;
}

using Counts = py::array_t<std::int32_t, py::array::c_style>;

void add_counts(LockedCoverage& coverage, std::uint64_t start, const Counts& counts) {
  const auto n = static_cast<std::uint64_t>(counts.size());
  check_stretch(coverage, start, start + n);
  const std::int32_t* data = counts.data();
  const auto* wrong = std::find_if(data, data + n, [](std::int32_t count) { return count < 0; });
  if (wrong != data + n) throw py::value_error("counts must not be negative, got " + std::to_string(*wrong));
  py::gil_scoped_release release;
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  coverage.add_counts(start, data, n);
}

py::bytes to_bytes(const LockedCoverage& coverage) {
  const std::lock_guard<std::mutex> lock(coverage.mutex);
  auto bytes = py::reinterpret_steal<py::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(coverage.num_bytes())));
  if (!bytes) throw py::error_already_set();
  coverage.to_bytes(reinterpret_cast<unsigned char*>(PyBytes_AS_STRING(bytes.ptr())));
  return bytes;
}

std::unique_ptr<LockedCoverage> from_bytes(std::uint64_t num_ids, const py::bytes& bytes) {
  auto coverage = std::make_unique<LockedCoverage>(num_ids);
  const auto n = static_cast<std::uint64_t>(PyBytes_GET_SIZE(bytes.ptr()));
  if (!coverage->from_bytes(reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.ptr())), n)) {
    throw py::value_error("these " + std::to_string(n) + " bytes are no coverage of " + std::to_string(num_ids) +
                          " ids");
  }
  return coverage;
}

}  // namespace

void bind_ledger(py::module_& m) {
  py::class_<Fingerprint>(m, "Fingerprint")
      .def(py::init([](std::int64_t count, std::uint64_t first, std::uint64_t second) {
             return Fingerprint{static_cast<std::uint64_t>(count), first, second};
           }),
           py::arg("count") = 0, py::arg("first") = 0, py::arg("second") = 0)
      .def_property_readonly("count", [](const Fingerprint& sum) { return static_cast<std::int64_t>(sum.count); })
      .def_readonly("first", &Fingerprint::first)
      .def_readonly("second", &Fingerprint::second)
      .def(
          "add",
          [](Fingerprint& sum, py::handle ids, std::uint64_t num_ids) {
            Fingerprint added;
            with_ids(ids, num_ids, [&](const std::int64_t* data, std::uint64_t n) { added.add(data, n); });
            sum += added;  // with the GIL
          },
          py::arg("ids"), py::arg("num_ids") = kAnyId)
      .def(
          "add_range",
          [](Fingerprint& sum, std::uint64_t start, std::uint64_t stop) {
            Fingerprint added;
            {
              py::gil_scoped_release release;
              added.add_range(start, stop);
            }
            sum += added;
          },
          py::arg("start"), py::arg("stop"))
      .def(
          "__add__", [](Fingerprint sum, const Fingerprint& other) { return sum += other; }, py::is_operator())
      .def(
          "__sub__", [](Fingerprint sum, const Fingerprint& other) { return sum -= other; }, py::is_operator())
      .def("__eq__", &Fingerprint::operator==, py::is_operator());
  py::class_<LockedCoverage>(m, "Coverage")
      .def(py::init<std::uint64_t>(), py::arg("num_ids"))
      .def_property_readonly("num_ids", &LockedCoverage::num_ids)
      .def(
          "add",
          [](LockedCoverage& coverage, py::handle ids) {
            with_ids(ids, coverage.num_ids(), [&](const std::int64_t* data, std::uint64_t n) {
              const std::lock_guard<std::mutex> lock(coverage.mutex);
              coverage.add(data, n);
            });
          },
          py::arg("ids"))
      .def("add_counts", &add_counts, py::arg("start"), py::arg("counts"))
      .def("counts", &counts, py::arg("start"), py::arg("stop"))
      .def("to_bytes", &to_bytes)
      .def_static("from_bytes", &from_bytes, py::arg("num_ids"), py::arg("data"));
}

}  // namespace fastshard
