// y = x of the root, the same on every rank. x of the other ranks is not read, but has its size.
//
//   kPerRankLoss     root: dx = sum over ranks of dy_r; others: dx = 0
//   kReplicatedLoss  root: dx = dy;                     others: dx = 0; no communication
//
// All buffers have the same number of elements, on all ranks. The rest: grad_convention.h.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/ops/grad_convention.h"

namespace gaccd::collectives {

class Broadcast {
 public:
  // REQUIRES: 0 <= root < comm.size().
  Broadcast(Communicator& comm, int root, GradConvention convention = GradConvention::kPerRankLoss)
      : comm_(&comm),
        root_(root),
        convention_(convention),
        counts_(static_cast<std::size_t>(comm.size()), 0) {}

  [[nodiscard]] Status Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream = {});
  [[nodiscard]] Status Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream = {});

 private:
  Communicator* comm_;
  int root_;
  GradConvention convention_;
  std::vector<std::int64_t> counts_;  // all elements at the root
};

}  // namespace gaccd::collectives
