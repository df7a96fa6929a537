// The contract of every order: which sample id sits at a position of an epoch.
//
// An order is a pure function of (epoch, position); position p costs the same wherever it is, and `fill` writes the ids
// of a strided run of positions without touching any other. Implementations may keep what they derived for the last
// epoch, but must be safe to call from several threads at once. Arguments are checked by the caller (bindings and
// fastshard.orders): the core trusts them.
#pragma once

#include <cstdint>

namespace fastshard {

// Positions start, start + step, ..., count of them. The last one is below the order's size, so nothing overflows.
struct Positions {
  std::uint64_t start;
  std::uint64_t count;
  std::uint64_t step;
};

class Order {
 public:
  virtual ~Order() = default;

  // Writes the ids at `positions` of `epoch` to out[0 .. positions.count).
  virtual void fill(std::uint64_t epoch, Positions positions, std::int64_t* out) const = 0;

  // Writes the ids at positions[0 .. count), in any order and any number of times each, to out[0 .. count). Orders
  // whose `fill` has more to do once than for an id override it.
  virtual void take(std::uint64_t epoch, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const {
    for (std::uint64_t i = 0; i < count; ++i) fill(epoch, {positions[i], 1, 1}, out + i);
  }

  // Begins, in the background, whatever `epoch` will need.
  virtual void prepare(std::uint64_t /*epoch*/) const {}
};

// An order that holds every id exactly once, and so can be asked where.
class Bijection : public Order {
 public:
  // The position of `id` in `epoch`: position(e, x) == p exactly where fill writes x at p.
  virtual std::uint64_t position(std::uint64_t epoch, std::uint64_t id) const = 0;
};

}  // namespace fastshard
