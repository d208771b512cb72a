#include "daemon/checkpoint/saved_job.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/bad_data.h"
#include "daemon/config/job_text.h"
#include "daemon/data/update_schedule.h"
#include "daemon/tensor/finite.h"

namespace gaccd {
namespace {

// In a partial update, each rank has processed the first micro_step micro-batches of its load.
Status CheckPartialUpdate(const Manifest& manifest, const UpdateSchedule& schedule) {
  const std::int64_t micro_step = manifest.cursor.micro_step;
  GACCD_ASSIGN_OR_RETURN(const Plan plan,
                         manifest.plan->ForSamples(schedule.At(manifest.cursor.step).samples));
  const std::int64_t steps = plan.accum_steps();
  if (micro_step >= steps) {
    return BadData(
        StrCat("partial update: expected less than ", steps, " micro-steps, found ", micro_step));
  }
  for (std::int64_t rank = 0; rank < manifest.world(); ++rank) {
    const std::int64_t expected = plan.SamplesInFirst(rank, micro_step);
    const std::int64_t found = manifest.shards[static_cast<std::size_t>(rank)].partial.samples;
    if (found == expected) continue;
    return BadData(StrCat("partial update of rank ", rank, ": expected ", expected,
                          " samples after ", micro_step, " micro-steps, found ", found));
  }
  return Status::Ok();
}

}  // namespace

Result<Job> SavedJob(const Manifest& manifest) {
  auto saved = ParseJobText(manifest.job_text, "job text of the checkpoint");
  if (!saved.ok()) return OtherVersion(manifest.program, saved.status().message());
  return saved;
}

Result<Job> CheckedJob(const Manifest& manifest) {
  const RunCursor& cursor = manifest.cursor;
  GACCD_ASSIGN_OR_RETURN(Job saved, SavedJob(manifest));
  const auto schedule = MakeUpdateSchedule(saved, *manifest.plan, cursor.dataset_samples);
  if (!schedule.ok()) return BadData(schedule.status().message());
  const std::int64_t last = schedule->updates() - (cursor.micro_step > 0 ? 1 : 0);
  if (cursor.step > last) {
    return BadData(StrCat("the checkpoint is past the end of its own job: expected at most update ",
                          last, ", found ", cursor.step));
  }
  const std::int64_t most = schedule->SamplesBefore(cursor.step);
  if (cursor.samples < cursor.optimizer_updates || cursor.samples > most) {
    return BadData(StrCat("expected ", cursor.optimizer_updates, " to ", most, " samples after ",
                          cursor.step, " updates, found ", cursor.samples));
  }
  if (cursor.micro_step > 0) GACCD_RETURN_IF_ERROR(CheckPartialUpdate(manifest, *schedule));
  return saved;
}

Status CheckParametersFinite(const Manifest& manifest, std::span<const float> values,
                             std::int64_t first) {
  const std::size_t bad = FirstNotFinite(values);
  if (bad == values.size()) return Status::Ok();
  const std::int64_t at = first + static_cast<std::int64_t>(bad);
  const auto after =
      std::ranges::upper_bound(manifest.parameters, at, {}, &ParameterRecord::offset);
  if (after == manifest.parameters.begin()) {
    return BadData(StrCat("value ", at, " of the parameters is not finite: ", values[bad]));
  }
  const ParameterRecord& parameter = *std::prev(after);
  return BadData(
      StrCat(parameter.name, ": value ", at - parameter.offset, " is not finite: ", values[bad]));
}

}  // namespace gaccd
