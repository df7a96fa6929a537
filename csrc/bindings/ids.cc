// Ids: an iterator of Python ints over an int64 array, as cheap per id as `range`. Batches: one of lists of them.
//
// A list of all the ids (tolist) would allocate an object for each before the first is used, and miss the allocator's
// hottest free block at every one; these make an int, or a batch of them, at the moment it is asked for. They are types
// of CPython's own, not pybind11 classes, because they are called once per id, or batch of as little as one, which
// leaves no room for general handling of arguments.
#include <pybind11/numpy.h>

#include <algorithm>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace fastshard {
namespace {

struct Ids {
  PyObject_HEAD;
  PyObject* array;  // keeps the memory alive
  const std::int64_t* next;
  const std::int64_t* end;
  Py_ssize_t size;  // ids in a list of Batches
};

Ids* self(PyObject* object) { return reinterpret_cast<Ids*>(object); }

void dealloc(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(self(object)->array);
  type->tp_free(object);
  Py_DECREF(type);
}

Py_ssize_t left(const Ids* ids) { return ids->end - ids->next; }

PyObject* next_id(PyObject* object) {
  Ids* ids = self(object);
  return left(ids) ? PyLong_FromLongLong(*ids->next++) : nullptr;
}

PyObject* next_batch(PyObject* object) {
  Ids* ids = self(object);
  const Py_ssize_t count = std::min(ids->size, left(ids));
  if (count == 0) return nullptr;
  PyObject* batch = PyList_New(count);
  if (!batch) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* id = PyLong_FromLongLong(ids->next[i]);
    if (!id) {
      Py_DECREF(batch);
      return nullptr;
    }
    PyList_SET_ITEM(batch, i, id);
  }
  ids->next += count;
  return batch;
}

PyObject* ids_left(PyObject* object, PyObject*) { return PyLong_FromSsize_t(left(self(object))); }

PyObject* batches_left(PyObject* object, PyObject*) {
  const Py_ssize_t ids = left(self(object)), size = self(object)->size;
  return PyLong_FromSsize_t(ids / size + (ids % size != 0));
}

// `given` is a contiguous int64 array, or is converted to one.
PyObject* make(PyTypeObject* type, PyObject* given, Py_ssize_t size) {
  auto array = py::array_t<std::int64_t, py::array::c_style>::ensure(given);
  if (!array) {
    PyErr_Format(PyExc_TypeError, "array must be of integers that fit int64, got %R", given);
    return nullptr;
  }
  Ids* ids = self(type->tp_alloc(type, 0));
  if (!ids) return nullptr;
  ids->next = array.data();
  ids->end = ids->next + array.size();
  ids->size = size;
  ids->array = array.release().ptr();
  return reinterpret_cast<PyObject*>(ids);
}

// Ids(array)
PyObject* make_ids(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* names[] = {"array", nullptr};
  PyObject* given = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", const_cast<char**>(names), &given)) return nullptr;
  return make(type, given, 1);
}

// Batches(array, size)
PyObject* make_batches(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const char* names[] = {"array", "size", nullptr};
  PyObject* given = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On", const_cast<char**>(names), &given, &size)) return nullptr;
  if (size < 1) return PyErr_Format(PyExc_ValueError, "size must be at least 1, got size=%zd", size);
  return make(type, given, size);
}

PyMethodDef ids_methods[] = {
    {"__length_hint__", ids_left, METH_NOARGS, "The number of ids that are left."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef batches_methods[] = {
    {"__length_hint__", batches_left, METH_NOARGS, "The number of lists that are left."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot ids_slots[] = {
    {Py_tp_doc, const_cast<char*>("An iterator of Python ints over an int64 array, as cheap per id as range.")},
    {Py_tp_new, reinterpret_cast<void*>(make_ids)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next_id)},
    {Py_tp_methods, ids_methods},
    {0, nullptr},
};

PyType_Slot batches_slots[] = {
    {Py_tp_doc, const_cast<char*>("An iterator of lists of `size` ints over an int64 array; the last may be shorter.")},
    {Py_tp_new, reinterpret_cast<void*>(make_batches)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(next_batch)},
    {Py_tp_methods, batches_methods},
    {0, nullptr},
};

PyType_Spec ids_spec = {"fastshard._core.Ids", sizeof(Ids), 0, Py_TPFLAGS_DEFAULT, ids_slots};
PyType_Spec batches_spec = {"fastshard._core.Batches", sizeof(Ids), 0, Py_TPFLAGS_DEFAULT, batches_slots};

void add_type(py::module_& m, const char* name, PyType_Spec& spec) {
  auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  m.add_object(name, type);
}

}  // namespace

void bind_ids(py::module_& m) {
  add_type(m, "Ids", ids_spec);
  add_type(m, "Batches", batches_spec);
}

}  // namespace fastshard
