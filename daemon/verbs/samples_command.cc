#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/make_plan.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/data/node_share.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/verbs/verbs.h"

namespace gaccd {
namespace {

// The samples of one rank in one update.
struct RankSamples {
  std::int64_t rank = 0;
  std::vector<std::int64_t> micro_batches;  // sizes
  std::vector<std::int64_t> samples;
};

struct PlannedSamples {
  Plan plan;
  UpdateSchedule schedule;
  SampleOrder order;

  [[nodiscard]] Result<RankSamples> MakeRankSamples(const Update& update, std::int64_t rank) const {
    GACCD_ASSIGN_OR_RETURN(const Plan own, update.samples == plan.effective_batch()
                                               ? Result<Plan>(plan)
                                               : plan.ForSamples(update.samples));
    GACCD_ASSIGN_OR_RETURN(TrainIndices indices,
                           TrainIndices::Make(order, schedule, plan, rank, update.index));
    RankSamples rank_samples{.rank = rank};
    std::vector<std::int64_t> next(static_cast<std::size_t>(indices.max_samples()));
    for (std::int64_t step = 0; step < own.accum_steps(); ++step) {
      const std::int64_t count = indices.Next(next);
      rank_samples.micro_batches.push_back(count);
      rank_samples.samples.insert(rank_samples.samples.end(), next.begin(), next.begin() + count);
    }
    return rank_samples;
  }
};

Result<std::int64_t> DatasetSize(const Flags& flags, const Job& job) {
  if (flags.dataset_size) return *flags.dataset_size;
  if (!flags.job) {
    return Status(ErrorKind::kUsage, "samples needs --dataset-size=N or --job=FILE");
  }
  NodeShare unchecked = NodeShare::Unchecked();
  GACCD_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(job, {}, &unchecked));
  return data.train->size();
}

std::string JsonLine(const UpdateSchedule& schedule, const Update& update,
                     const RankSamples& rank_samples) {
  JsonObject line;
  line("update", update.index + 1);
  line("updates", schedule.updates());
  line("epoch", update.epoch + 1);
  line("epoch_end", update.epoch_end);
  line("update_samples", update.samples);
  line("rank", rank_samples.rank);
  line("micro_batches", std::span<const std::int64_t>(rank_samples.micro_batches));
  line("samples", std::span<const std::int64_t>(rank_samples.samples));
  return line.FinishLine();
}

// "  rank 3: 17 4 | 5", with a bar between micro-batches.
std::string TextLine(const RankSamples& rank_samples) {
  std::string text = StrCat("  rank ", rank_samples.rank, ":");
  auto next = rank_samples.samples.begin();
  for (std::size_t step = 0; step < rank_samples.micro_batches.size(); ++step) {
    if (step > 0) text += " |";
    for (std::int64_t i = 0; i < rank_samples.micro_batches[step]; ++i)
      text += StrCat(" ", *next++);
  }
  return text + "\n";
}

// For --rank, or all ranks.
Status PrintUpdate(const PlannedSamples& planned, const Update& update, const Flags& flags) {
  const bool json = flags.format == OutputFormat::kJson;
  std::string text;
  if (!json) {
    text = StrCat("update ", update.index + 1, " of ", planned.schedule.updates(), ", epoch ",
                  update.epoch + 1, ": ", update.samples, " samples\n");
  }
  const std::int64_t first = flags.rank.value_or(0);
  const std::int64_t end = flags.rank ? first + 1 : planned.plan.world();
  for (std::int64_t rank = first; rank < end; ++rank) {
    GACCD_ASSIGN_OR_RETURN(const RankSamples rank_samples, planned.MakeRankSamples(update, rank));
    text += json ? JsonLine(planned.schedule, update, rank_samples) : TextLine(rank_samples);
  }
  return PrintOut(text);
}

}  // namespace

Status RunSamplesCommand(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(const PlanOutput output, MakePlanOutput(flags));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t size, DatasetSize(flags, output.job));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         MakeUpdateSchedule(output.job, output.plan, size));
  if (flags.rank && *flags.rank >= output.plan.world()) {
    return {ErrorKind::kUsage,
            StrCat("--rank must be below ", output.plan.world(), ", found ", *flags.rank)};
  }
  if (flags.first_update > schedule.updates()) {
    return {ErrorKind::kUsage, StrCat("--first-update must be at most ", schedule.updates(),
                                      ", the updates of the run, found ", flags.first_update)};
  }
  const PlannedSamples planned{output.plan, schedule,
                               SampleOrder(output.job.seed, size, output.job.data.shuffle)};
  const std::int64_t first = flags.first_update - 1;
  const std::int64_t left = schedule.updates() - first;
  const std::int64_t end = first + std::min(left, flags.updates.value_or(left));
  for (std::int64_t index = first; index < end; ++index) {
    GACCD_RETURN_IF_ERROR(PrintUpdate(planned, schedule.At(index), flags));
  }
  return Status::Ok();
}

}  // namespace gaccd
