// y = the rows of rank 0, then of rank 1, ...; the same on every rank.
//
//   x: rows_of(rank) x width (may be empty)      y: total_rows x width
//   kPerRankLoss     dx = own rows of the sum over ranks of dy_r (a reduce-scatter): every rank may
//                    use the gathered rows for different work
//   kReplicatedLoss  dx = own rows of dy: no communication
//
// The rest: grad_convention.h.
#pragma once

#include "collectives/comm/communicator.h"
#include "collectives/ops/grad_convention.h"
#include "collectives/ops/ragged_rows.h"

namespace gaccd::collectives {

class AllGather {
 public:
  // REQUIRES: rows.ranks() == comm.size().
  AllGather(Communicator& comm, RaggedRows rows,
            GradConvention convention = GradConvention::kPerRankLoss)
      : comm_(&comm), rows_(std::move(rows)), convention_(convention) {}

  [[nodiscard]] Status Forward(ConstBuffer x, MutableBuffer y, StreamHandle stream = {});
  // dy: as y; dx: as x.
  [[nodiscard]] Status Backward(ConstBuffer dy, MutableBuffer dx, StreamHandle stream = {});

  [[nodiscard]] const RaggedRows& rows() const { return rows_; }

 private:
  Communicator* comm_;
  RaggedRows rows_;
  GradConvention convention_;
};

}  // namespace gaccd::collectives
