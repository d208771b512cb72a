// y_s = the rows of rank s of the sum over ranks of x_r: each rank gets its part of the sum.
//
//   x: total_rows x width      y: rows_of(rank) x width (may be empty)
//   kPerRankLoss, kReplicatedLoss  dx = dy_0, dy_1, ... one after another (an all-gather)
//
// Both conventions agree, so there is no argument: a row of y exists on its owner alone, and what
// the owner holds is its whole cotangent. AllGather after ReduceScatter is AllReduceSum, with the
// gradient of AllReduceSum under each convention. The rest: grad_convention.h.
#pragma once

#include "collectives/comm/communicator.h"
#include "collectives/ops/grad_convention.h"
#include "collectives/ops/ragged_rows.h"

namespace gaccd::collectives {

class ReduceScatter {
 public:
  // REQUIRES: rows.ranks() == comm.size().
  ReduceScatter(Communicator& comm, RaggedRows rows) : comm_(&comm), rows_(std::move(rows)) {}

  [[nodiscard]] Status Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream = {});
  // dy: as y; dx: as x.
  [[nodiscard]] Status Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream = {});

  [[nodiscard]] const RaggedRows& rows() const { return rows_; }

 private:
  Communicator* comm_;
  RaggedRows rows_;
};

}  // namespace gaccd::collectives
