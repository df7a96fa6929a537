// The identity: position p holds sample p. The smallest order there is, and the speed limit of the others.
#pragma once

#include "order/order.h"

namespace fastshard {

class Sequential final : public Bijection {
 public:
  void fill(std::uint64_t, Positions positions, std::int64_t* out) const override {
    for (std::uint64_t i = 0; i < positions.count; ++i) {
      out[i] = static_cast<std::int64_t>(positions.start + i * positions.step);
    }
  }

  void take(std::uint64_t, const std::uint64_t* positions, std::uint64_t count, std::int64_t* out) const override {
    for (std::uint64_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>(positions[i]);
  }

  std::uint64_t position(std::uint64_t, std::uint64_t id) const override { return id; }
};

}  // namespace fastshard
