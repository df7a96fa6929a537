// Ids as a loader has them at hand: the list of ints of one batch, without the detour of an array, or a contiguous
// int64 buffer. All of them are checked before any is used.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace fastshard {

namespace py = pybind11;

constexpr std::uint64_t kAnyId = std::uint64_t{1} << 63;
constexpr std::size_t kMany = 1u << 15;  // ids from which on letting go of the GIL is worth it

[[noreturn]] inline void refuse(py::ssize_t i, py::handle id) {
  throw py::type_error("ids must be ints, got ids[" + std::to_string(i) + "]=" + py::repr(id).cast<std::string>());
}

[[noreturn]] inline void refuse_range(std::size_t i, const std::string& id, std::uint64_t num_ids) {
  const std::string high = num_ids == kAnyId ? "2^63" : std::to_string(num_ids);
  throw py::value_error("ids must be in [0, " + high + "), got ids[" + std::to_string(i) + "]=" + id);
}

// One element of a list: an int, or what can be one exactly, such as numpy's.
inline std::int64_t as_id(PyObject* item, py::ssize_t i, std::uint64_t num_ids) {
  py::object given, index;
  if (!PyLong_CheckExact(item)) {
    given = py::reinterpret_borrow<py::object>(item);  // whatever its __index__ does to the list
    if (PyBool_Check(item) || !PyIndex_Check(item)) refuse(i, item);
    index = py::reinterpret_steal<py::object>(PyNumber_Index(item));
    if (!index) throw py::error_already_set();
    item = index.ptr();
  }
  int overflow = 0;
  const long long id = PyLong_AsLongLongAndOverflow(item, &overflow);
  if (overflow) refuse_range(static_cast<std::size_t>(i), py::repr(item).cast<std::string>(), num_ids);
  return id;
}

inline void check_range(const std::int64_t* ids, std::size_t n, std::uint64_t num_ids) {
  // Its sign bit is set if that of an id is, or of what lies between an id and the last. No branch, no comparison of 64
  // bits, so that it goes through vectors of any instruction set.
  std::uint64_t signs = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto id = static_cast<std::uint64_t>(ids[i]);
    signs |= id | (num_ids - 1 - id);
  }
  if (signs >> 63 == 0) return;
  const auto* first = std::find_if(ids, ids + n, [&](auto id) { return static_cast<std::uint64_t>(id) >= num_ids; });
  refuse_range(static_cast<std::size_t>(first - ids), std::to_string(*first), num_ids);
}

// A contiguous int64 buffer, held until the end of the call.
class Int64View {
 public:
  explicit Int64View(py::handle ids) {
    if (PyObject_GetBuffer(ids.ptr(), &view_, PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      refuse_type(ids);
    }
    const std::string format = view_.format ? view_.format : "";
    if (view_.ndim != 1 || view_.itemsize != 8 || (format != "l" && format != "q" && format != "=q")) {
      PyBuffer_Release(&view_);
      refuse_type(ids);
    }
  }
  ~Int64View() { PyBuffer_Release(&view_); }
  Int64View(const Int64View&) = delete;
  Int64View& operator=(const Int64View&) = delete;

  const std::int64_t* data() const { return static_cast<const std::int64_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len / 8); }

 private:
  [[noreturn]] static void refuse_type(py::handle ids) {
    throw py::type_error("ids must be a list of ints or a contiguous 1-D int64 array, got ids=" +
                         py::repr(ids).cast<std::string>());
  }
  Py_buffer view_{};
};

// Calls use(ids, how many), without the GIL if they are many.
template <class Use>
void with_ids(py::handle ids, std::uint64_t num_ids, Use use) {
  if (PyList_Check(ids.ptr())) {
    const py::ssize_t n = PyList_GET_SIZE(ids.ptr());
    std::vector<std::int64_t> converted(static_cast<std::size_t>(n));
    for (py::ssize_t i = 0; i < n; ++i) {
      // An element's own __index__ may have made the list shorter.
      if (i >= PyList_GET_SIZE(ids.ptr())) throw py::value_error("ids must not change while they are recorded");
      converted[static_cast<std::size_t>(i)] = as_id(PyList_GET_ITEM(ids.ptr(), i), i, num_ids);
    }
    check_range(converted.data(), converted.size(), num_ids);
    use(converted.data(), converted.size());
    return;
  }
  const Int64View view(ids);
  if (view.size() < kMany) {
    check_range(view.data(), view.size(), num_ids);
    use(view.data(), view.size());
    return;
  }
  py::gil_scoped_release release;
  check_range(view.data(), view.size(), num_ids);
  use(view.data(), view.size());
}

}  // namespace fastshard
