// y = sum over ranks of x_r, the same on every rank.
//
//   kPerRankLoss     dx = sum over ranks of dy_r: x reaches the loss of every rank
//   kReplicatedLoss  dx = dy: no communication
//
// All buffers have the same number of elements, on all ranks. The rest: grad_convention.h.
#pragma once

#include "collectives/comm/communicator.h"
#include "collectives/ops/grad_convention.h"

namespace gaccd::collectives {

class AllReduceSum {
 public:
  explicit AllReduceSum(Communicator& comm,
                        GradConvention convention = GradConvention::kPerRankLoss)
      : comm_(&comm), convention_(convention) {}

  [[nodiscard]] Status Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream = {});
  [[nodiscard]] Status Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream = {});

 private:
  Communicator* comm_;
  GradConvention convention_;
};

}  // namespace gaccd::collectives
