#include "bindings/bindings.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "fastshard's compiled core. Arguments are checked by the Python classes that wrap it, not here.";
  fastshard::bind_ids(m);
  fastshard::bind_ledger(m);
  fastshard::bind_mixture(m);
  fastshard::bind_orders(m);
  fastshard::bind_shards(m);
  fastshard::bind_slice(m);
}
