// Ids: an iterator of Python ints over an int64 array, as cheap per id as `range`.
//
// A list of the ids (tolist) would allocate an object for each before the first is used, and miss the allocator's
// hottest free block at every one; this makes an int at the moment it is asked for. It is a type of CPython's own, not
// a pybind11 class, because it is called once per id, which leaves no room for general handling of arguments.
#include <pybind11/numpy.h>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace fastshard {
namespace {

struct Ids {
  PyObject_HEAD;
  PyObject* array;  // keeps the memory alive
  const std::int64_t* next;
  const std::int64_t* end;
};

Ids* self(PyObject* object) { return reinterpret_cast<Ids*>(object); }

void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(self(object)->array);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* next(PyObject* object) {
  Ids* ids = self(object);
  return ids->next == ids->end ? nullptr : PyLong_FromLongLong(*ids->next++);
}

PyObject* length_hint(PyObject* object, PyObject*) {
  return PyLong_FromSsize_t(self(object)->end - self(object)->next);
}

// Ids(array): `array` is a contiguous int64 array, or is converted to one.
PyObject* make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* names[] = {"array", nullptr};
  PyObject* given = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &given)) return nullptr;
  auto array = py::array_t<std::int64_t, py::array::c_style>::ensure(given);
  if (!array) {
    PyErr_Format(PyExc_TypeError, "array must be of integers that fit int64, got %R", given);
    return nullptr;
  }
  Ids* ids = self(type->tp_alloc(type, 0));
  if (!ids) return nullptr;
  ids->next = array.data();
  ids->end = ids->next + array.size();
  ids->array = array.release().ptr();
  return reinterpret_cast<PyObject*>(ids);
}

PyMethodDef methods[] = {
    {"__length_hint__", length_hint, METH_NOARGS, "The number of ids that are left."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("An iterator of Python ints over an int64 array, as cheap per id as range.")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"fastshard._core.Ids", sizeof(Ids), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

void bind_ids(py::module_& m) {
  auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  m.add_object("Ids", type);
}

}  // namespace fastshard
