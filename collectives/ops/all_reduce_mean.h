// y = (sum over ranks of x_r) / n, the same on every rank.
//
//   kPerRankLoss     dx = (sum over ranks of dy_r) / n
//   kReplicatedLoss  dx = dy / n: no communication
//
// n is what the sum is the mean of: samples, tokens, rows. It is an argument on purpose: the number
// of ranks is only right when every rank counts the same, which gaccd's ranks do not. All ranks
// give the same n >= 1. All buffers have the same number of elements, on all ranks. The rest:
// grad_convention.h.
#pragma once

#include <cstdint>

#include "collectives/comm/communicator.h"
#include "collectives/ops/grad_convention.h"

namespace gaccd::collectives {

class AllReduceMean {
 public:
  explicit AllReduceMean(Communicator& comm,
                         GradConvention convention = GradConvention::kPerRankLoss)
      : comm_(&comm), convention_(convention) {}

  [[nodiscard]] Status Forward(ConstBuffer x, std::int64_t n, MutableBuffer y,
                               StreamHandle stream = {});
  [[nodiscard]] Status Backward(ConstBuffer dy, std::int64_t n, MutableBuffer dx,
                                StreamHandle stream = {});

 private:
  Communicator* comm_;
  GradConvention convention_;
};

}  // namespace gaccd::collectives
