// Known mistakes of other programs with sharded optimisers and pipelines, for selftests: a
// communicator that makes an engine exchange wrong values.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

enum class ExchangeMistake : std::uint8_t {
  // shard
  kOwnPart,    // parts of other ranks are not gathered
  kMean,       // a sum is divided by the number of ranks
  kOwnNode,    // no sums between nodes
  kEqualCuts,  // parts are at the offsets of equal cuts that ignore blocks
  // pipeline
  kFirstGradient,    // every micro-batch uses the gradient that its stage received first
  kMeanOfPipelines,  // the gradients of pipelines are averaged
  kOwnPipeline,      // or not reduced
  kOwnShared,        // a parameter of several stages only gets its own gradient
};
[[nodiscard]] std::string_view Name(ExchangeMistake mistake);

// The mistakes that apply to the job's shard mode or pipeline.
[[nodiscard]] std::vector<ExchangeMistake> ListExchangeMistakes(const Job& job);

// Whether it changes an update: not if nothing is divided, on one node, if equal cuts are at
// blocks, and so on. model: of stage 0.
[[nodiscard]] bool HasEffect(ExchangeMistake mistake, const Job& job, const Plan& plan,
                             const Model& model);

// Makes the mistake with every f32 buffer of an engine that uses this communicator or those split
// from it as in ShardExchange and PipelineExchange. `inner` must outlive this.
[[nodiscard]] std::unique_ptr<Communicator> MakeFaultyCommunicator(Communicator& inner,
                                                                   ExchangeMistake mistake);

}  // namespace gaccd
