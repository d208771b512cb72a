#include "daemon/train/rank_memory.h"

#include <map>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/sample_order.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/shard_grid.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/pipeline.h"

namespace gaccd {
namespace {

std::int64_t Largest(const std::set<std::int64_t>& sizes) {
  return sizes.empty() ? 0 : *sizes.rbegin();
}

Result<std::int64_t> PrefetchBytes(const Dataset& data, std::int64_t samples) {
  const auto bytes = Prefetcher::RingBytes(data.spec(), samples);
  if (bytes) return static_cast<std::int64_t>(*bytes) + data.gather_bytes();
  return Status(ErrorKind::kConfig, StrCat("micro-batches of ", samples, " samples of ",
                                           Describe(data.spec()), " do not fit the address space"));
}

// Elements of a buffer are divided over the ranks.
std::int64_t CheckpointBytes(const PlannedTraining& training, std::int64_t world) {
  const FlatLayout& layout = training.model.layout();
  const std::int64_t elements =
      layout.size() + StateElements(training.job.optimizer, layout.trainable_size());
  return static_cast<std::int64_t>(sizeof(float)) * ((elements + world - 1) / world);
}

}  // namespace

Result<ReplicaOptions> EngineSizes(const PlannedTraining& training, const Plan& plan, int rank) {
  const Dataset& data = *training.data.train;
  const SampleOrder order(training.job.seed, data.size(), training.job.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(BatchFeed feed,
                         BatchFeed::Make(data, order, training.schedule, plan, rank,
                                         SelectProgramGenerator(training.job, training.model)));
  if (training.any_load) feed.PrepareForOtherLoads();
  ReplicaOptions sizes{
      .micro_batches = feed.BatchSizes(),
      .micro_steps_per_update = feed.max_micro_steps(),
      .effective_batch = training.schedule.sizes().back(),
      .rank_samples = feed.max_samples(),
      .in_flight = MaxInFlight(training.job, training.model, feed.max_micro_steps()),
      .recompute = plan.request().recompute,
      .any_split = plan.any_split()};
  if (training.data.eval != nullptr) {
    sizes.eval_batches = EvalBatchSizes(
        MakeEvalShard(training.data.eval->size(), rank / plan.stages(), plan.pipelines(),
                      plan.any_split() ? plan.request().micro_batch : 1),
        plan.request().micro_batch);
  }
  return sizes;
}

int CountStateParts(const Job& job, const Plan& plan, std::int64_t stage) {
  if (job.shard == Sharding::kNone) return 1;
  std::map<std::int64_t, int> ranks;  // ranks of the stage, by node
  for (std::int64_t rank = stage; rank < plan.world(); rank += plan.stages()) {
    ++ranks[rank / plan.request().gpus_per_node];
  }
  std::vector<int> ranks_of_nodes;
  for (const auto& [node, count] : ranks) ranks_of_nodes.push_back(count);
  return ShardGrid::Make(job.shard, ranks_of_nodes).parts();
}

Result<EngineMemory> PlanRankMemory(const PlannedTraining& training, const Plan& plan, int rank,
                                    const PlanEngine& plan_engine) {
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions sizes, EngineSizes(training, plan, rank));
  GACCD_ASSIGN_OR_RETURN(EngineMemory memory, plan_engine(sizes));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t ring,
                         PrefetchBytes(*training.data.train, Largest(sizes.micro_batches)));
  memory.host_bytes += ring;
  if (training.data.eval != nullptr) {
    GACCD_ASSIGN_OR_RETURN(const std::int64_t other,
                           PrefetchBytes(*training.data.eval, Largest(sizes.eval_batches)));
    memory.host_bytes += other;
  }
  if (training.saves) memory.host_bytes += 2 * CheckpointBytes(training, plan.world());
  return memory;
}

}  // namespace gaccd
