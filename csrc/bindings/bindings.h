// One function per noun; module.cc calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace fastshard {

void bind_ids(pybind11::module_& m);
void bind_ledger(pybind11::module_& m);
void bind_mixture(pybind11::module_& m);
void bind_orders(pybind11::module_& m);
void bind_shards(pybind11::module_& m);
void bind_slice(pybind11::module_& m);

}  // namespace fastshard
