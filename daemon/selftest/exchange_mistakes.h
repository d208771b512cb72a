// What other programs do wrong where the optimiser is sharded or the model runs in a pipeline, for
// selftests: a communicator over which an engine exchanges values wrongly.
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
  kMean,       // a sum is divided by the ranks that made it
  kOwnNode,    // nothing is summed between nodes
  kEqualCuts,  // parts are put where equal cuts, without whole blocks, would be
  // pipeline
  kFirstGradient,    // every micro-batch takes the gradient that its stage received first
  kMeanOfPipelines,  // the gradients of pipelines are averaged
  kOwnPipeline,      // or not reduced
  kOwnShared,        // of a parameter of several stages one has its own gradient alone
};
[[nodiscard]] std::string_view Name(ExchangeMistake mistake);

// Those that a job lends itself to: of its shard mode or of its pipeline.
[[nodiscard]] std::vector<ExchangeMistake> ExchangeMistakesOf(const Job& job);

// Whether it changes an update: not where nothing is divided, on one node, where equal cuts are
// those of blocks, and so on. model: of stage 0.
[[nodiscard]] bool HasEffect(ExchangeMistake mistake, const Job& job, const Plan& plan,
                             const Model& model);

// Makes it with every f32 buffer of the engine that is made with this communicator, and with those
// split from it as ShardExchange and PipelineExchange do. `inner` outlives this.
[[nodiscard]] std::unique_ptr<Communicator> MakeMistaken(Communicator& inner,
                                                         ExchangeMistake mistake);

}  // namespace gaccd
