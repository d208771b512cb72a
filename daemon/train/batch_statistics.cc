#include "daemon/train/batch_statistics.h"

#include <ranges>
#include <set>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Over all ranks.
std::set<std::int64_t> MicroBatchSizes(const Plan& plan) {
  std::set<std::int64_t> sizes;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    sizes.merge(plan.MicroBatchSizes(rank));
  }
  return sizes;
}

Status CheckMicroBatches(const Plan& plan, std::string_view where, std::string_view remedy) {
  if (!MicroBatchSizes(plan).contains(1)) return Status::Ok();
  return {
      ErrorKind::kConfig,
      StrCat("batch_norm: one value of a channel has no variance: with stats MICRO expected at "
             "least 2 samples in every micro-batch, found 1 in ",
             where, " on ", plan.world(), " ranks: choose another target or micro-batch", remedy)};
}

Status CheckRuns(const Model& model, std::int64_t samples, std::string_view where,
                 std::string_view remedy) {
  for (const nn::RunningUpdate& running : model.running_statistics()) {
    if (running.run_size == 0 || running.values != 1 || samples % running.run_size != 1) continue;
    return {ErrorKind::kConfig,
            StrCat("batch_norm: one value of a channel has no variance: with stats GHOST and "
                   "ghost_size ",
                   running.run_size, " the last samples of ", where,
                   " are 1, expected at least 2: choose another target or ghost_size", remedy)};
  }
  return Status::Ok();
}

}  // namespace

Status CheckBatchStatistics(const Model& model, const Plan& plan, const UpdateSchedule& schedule) {
  GACCD_ASSIGN_OR_RETURN(const auto plans, PlansBySize(plan, schedule));
  for (const auto& [samples, own] : std::views::reverse(plans)) {
    const bool smaller = schedule.IsSmaller(samples);
    const std::string where = StrCat(smaller ? "the smaller update of " : "updates of ", samples);
    const std::string_view remedy = smaller ? ", or --last-cycle=drop" : "";
    GACCD_RETURN_IF_ERROR(CheckRuns(model, samples, where, remedy));
    if (model.micro_values() != 1) continue;
    GACCD_RETURN_IF_ERROR(CheckMicroBatches(own, where, remedy));
  }
  return Status::Ok();
}

std::string UpdateSumsText(const Model& model) {
  bool whole = false;
  std::set<std::int64_t> runs;
  for (const nn::RunningUpdate& running : model.running_statistics()) {
    whole |= running.sums != nn::kNoValue && running.run_size == 0;
    if (running.run_size > 0) runs.insert(running.run_size);
  }
  std::string text = whole ? "of the whole update" : "";
  for (const std::int64_t size : runs) {
    text += StrCat(text.empty() ? "of every " : ", of every ", size, " samples in a row");
  }
  return text;
}

std::string MicroBatchesText(const Plan& plan) {
  const std::set<std::int64_t> sizes = MicroBatchSizes(plan);
  std::string text = StrCat("of ", *sizes.begin());
  if (sizes.size() > 1) text += StrCat(sizes.size() > 2 ? " to " : " or ", *sizes.rbegin());
  return text + (*sizes.rbegin() == 1 ? " sample" : " samples");
}

}  // namespace gaccd
