// What a cotangent means when a value has passed through a collective operation.
//
// x_r: input of rank r; y_r: output of rank r; dy_r, dx_r: derivatives of the objective J by them.
//
//   kPerRankLoss (default)  J = sum over ranks of L_r(y_r): each rank has a loss of its own, and
//                           the objective is their sum. dy_r = dL_r/dy_r.
//   kReplicatedLoss         J = L(y): every rank computes the same loss from the same y, and it
//                           counts once. dy_r = dL/dy is the same on every rank.
//
//   operation       forward                backward, kPerRankLoss    backward, kReplicatedLoss
//   AllReduceSum    y = sum_r x_r          dx = sum_r dy_r           dx = dy
//   AllReduceMean   y = sum_r x_r / n      dx = sum_r dy_r / n       dx = dy / n
//   AllGather       y = rows of all ranks  dx = own rows of          dx = own rows of dy
//                                               sum_r dy_r
//   ReduceScatter   y_s = rows of s of     dx = dy of all ranks, gathered (under both: the owner
//                         sum_r x_r             of a row is the only one that has its cotangent)
//   Broadcast       y = x of the root      root: dx = sum_r dy_r     root: dx = dy
//                                          others: dx = 0            others: dx = 0
//
// Choosing the wrong one multiplies gradients by the number of ranks or loses the parts of the
// other ranks; both are silent. tests/ranks/op_gradients.h shows it by finite differences.
//
// All of this is in namespace gaccd::collectives, since the daemon has functions of the same names.
// Common to all operations: every rank calls Forward (and Backward) in the same order with sizes
// that belong together. Inputs are never changed and must not overlap outputs. Outputs are
// overwritten, not added to. f32 and f64, host memory; one thread at a time. The communicator must
// outlive the operation. Wrong arguments are kInternal; other errors come from the communicator.
#pragma once

#include <cstdint>

namespace gaccd::collectives {

enum class GradConvention : std::uint8_t { kPerRankLoss, kReplicatedLoss };

}  // namespace gaccd::collectives
