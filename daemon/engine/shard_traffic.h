// Formulas for the bytes that the ranks send in an update of the model, with and without sharding,
// as counted by the communicators (Communicator::traffic()). W ranks on K nodes, B bytes of
// parameters, S bytes of the sums of squares of their blocks, from which the norm is computed:
//
//   mode            sent by all ranks            of that, between nodes
//   NONE            2 (W-1) B                    2 (K-1) B      B without the padding at its end
//   OPTIMIZER       (W-1) (2B + S)               between parts and ranks of other nodes
//   NODE            (W-K) (2B + S) + 2 (K-1) B   2 (K-1) B
//   NODE_OPTIMIZER  (W-1) (2B + S)               (K-1) (2B + S)
#pragma once

#include <cstdint>
#include <span>

#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/replica/pipeline_stage.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// Sum over all ranks, without the message of losses and counts. ranks_of_nodes: number of ranks of
// each node; the ranks of a node are consecutive.
[[nodiscard]] CommTraffic UpdateTraffic(Sharding mode, const FlatLayout& layout,
                                        std::span<const int> ranks_of_nodes);

// The same for a pipeline stage, summed over its ranks, one per pipeline. These ranks reduce the
// gradients (unsharded: with the padding). In each pipeline, stages gather norms; parameters that
// several stages share are summed and broadcast, and these stages count equal parts of that.
// Without the messages of activations. kConfig: see PartLayout().
Result<CommTraffic> StageTraffic(Sharding mode, const FlatLayout& layout,
                                 const PipelineStage& stage, std::span<const int> ranks_of_nodes);

// Traffic of an all-reduce of this many bytes.
[[nodiscard]] CommTraffic SumTraffic(std::int64_t bytes, std::span<const int> ranks_of_nodes);

}  // namespace gaccd
