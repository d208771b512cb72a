// CheckManifest() of manifest.h.

#include <algorithm>
#include <cmath>
#include <set>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job_text.h"
#include "daemon/data/update_schedule.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {

namespace {

constexpr std::size_t kMaxNameBytes = 256;

Status CheckName(std::string_view what, std::string_view name) {
  const auto printable = [](char c) { return c > ' ' && c < '\x7f' && c != '/'; };
  if (!name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, printable)) {
    return Status::Ok();
  }
  return BadData(
      StrCat(what, ": expected a name of 1 to ", kMaxNameBytes, " printable characters"));
}

Status CheckCursor(const Manifest& manifest) {
  const RunCursor& cursor = manifest.cursor;
  if (cursor.step < 0 || cursor.samples < 0 || cursor.micro_step < 0 ||
      cursor.optimizer_updates < 0 || cursor.dataset_samples < 0 || manifest.writer_epoch < 1) {
    return BadData(StrCat("expected counts >= 0 and a writer epoch >= 1, found step ", cursor.step,
                          ", samples ", cursor.samples, ", micro-step ", cursor.micro_step,
                          ", optimiser updates ", cursor.optimizer_updates, ", data set ",
                          cursor.dataset_samples, ", epoch ", manifest.writer_epoch));
  }
  if (cursor.optimizer_updates > cursor.step) {
    return BadData(StrCat("expected at most ", cursor.step,
                          " optimiser updates, as many as updates, found ",
                          cursor.optimizer_updates));
  }
  return Status::Ok();
}

Status CheckBest(const RunCursor& cursor) {
  const BestSoFar& best = cursor.best;
  if (0 <= best.step && best.step <= best.evaluated && best.evaluated <= cursor.step &&
      0 <= best.waited && best.waited <= best.evaluated && std::isfinite(best.value) &&
      std::isfinite(best.reference)) {
    return Status::Ok();
  }
  return BadData(StrCat("expected a best evaluation up to the last one, which is up to update ",
                        cursor.step, ", found ", best.value, " after update ", best.step,
                        ", the last after update ", best.evaluated, ", ", best.waited,
                        " since one better than ", best.reference));
}

Status CheckLossScale(const RunCursor& cursor) {
  if (!cursor.loss_scale) return Status::Ok();
  const auto& [scale, tracker] = *cursor.loss_scale;
  if (scale > 0 && std::isfinite(scale) && 0 <= tracker && tracker <= cursor.step) {
    return Status::Ok();
  }
  return BadData(StrCat("expected a loss scale above 0 that is at most ", cursor.step,
                        " updates old, found ", scale, " after ", tracker));
}

// Checks the counts of the ranks in the update after the cursor. A loss may be negative.
Status CheckPartialUpdates(const Manifest& manifest) {
  for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank) {
    const PartialUpdate& partial = manifest.shards[rank].partial;
    const bool finite = std::isfinite(partial.loss_sum) && std::isfinite(partial.divisor);
    if (partial.samples >= 0 && partial.divisor >= 0 && finite &&
        (manifest.cursor.micro_step > 0 || partial == PartialUpdate{})) {
      continue;
    }
    return BadData(StrCat("partial update of rank ", rank, " after ", manifest.cursor.micro_step,
                          " micro-steps: expected counts >= 0, and 0 after none, found ",
                          partial.samples, " samples, a sum of losses of ", partial.loss_sum,
                          " and a divisor of ", partial.divisor));
  }
  return Status::Ok();
}

Status CheckBuffers(const Manifest& manifest) {
  if (manifest.buffers.empty() || manifest.buffers.size() > kMaxBuffers) {
    return BadData(
        StrCat("expected 1 to ", kMaxBuffers, " buffers, found ", manifest.buffers.size()));
  }
  for (std::size_t i = 0; i < manifest.buffers.size(); ++i) {
    const BufferSpec& buffer = manifest.buffers[i];
    GACCD_RETURN_IF_ERROR(CheckName("buffer", buffer.name));
    if (buffer.bytes > kMaxBufferBytes) {
      return BadData(StrCat("buffer ", buffer.name, ": expected at most ", kMaxBufferBytes,
                            " bytes, found ", buffer.bytes));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (manifest.buffers[j].name == buffer.name) {
        return BadData(StrCat("buffer ", buffer.name, " appears twice"));
      }
    }
  }
  // Parameters are validated against it and read from it.
  if (manifest.buffers[0].name != kParametersBuffer || manifest.buffers[0].per_rank) {
    return BadData(StrCat("expected the first buffer to be ", kParametersBuffer,
                          ", one for all ranks, found ", manifest.buffers[0].name,
                          manifest.buffers[0].per_rank ? ", one for each rank" : ""));
  }
  if (manifest.block_bytes < kUnitBytes || manifest.block_bytes > kMaxBlockBytes) {
    return BadData(StrCat("expected blocks of ", kUnitBytes, " to ", kMaxBlockBytes,
                          " bytes, found ", manifest.block_bytes));
  }
  return Status::Ok();
}

// Parameters must be contiguous in the first buffer.
Status CheckParameters(const Manifest& manifest) {
  const auto elements = static_cast<std::int64_t>(manifest.buffers[0].bytes / sizeof(float));
  std::int64_t end = 0;
  std::set<std::string_view> names;
  for (const ParameterRecord& parameter : manifest.parameters) {
    GACCD_RETURN_IF_ERROR(CheckName("parameter", parameter.name));
    if (!names.insert(parameter.name).second) {
      return BadData(StrCat("parameter ", parameter.name, " is given twice"));
    }
    if (Status shape = CheckShape(parameter.shape, DType::kF32); !shape.ok()) {
      return BadData(StrCat("parameter ", parameter.name, ": ", shape.message()));
    }
    const std::int64_t count = Elements(parameter.shape);
    if (parameter.offset < end || count > elements || parameter.offset > elements - count) {
      return BadData(StrCat("parameter ", parameter.name, ": expected ", count,
                            " elements between ", end, " and ", elements, ", found the offset ",
                            parameter.offset));
    }
    end = parameter.offset + count;
  }
  return Status::Ok();
}

}  // namespace

Status CheckManifest(const Manifest& manifest) {
  GACCD_RETURN_IF_ERROR(CheckCursor(manifest));
  GACCD_RETURN_IF_ERROR(CheckBest(manifest.cursor));
  GACCD_RETURN_IF_ERROR(CheckLossScale(manifest.cursor));
  GACCD_RETURN_IF_ERROR(CheckPartialUpdates(manifest));
  GACCD_RETURN_IF_ERROR(CheckBuffers(manifest));
  GACCD_RETURN_IF_ERROR(CheckParameters(manifest));
  if (manifest.plan->world() != manifest.world()) {
    return BadData(StrCat("expected ", manifest.plan->world(), " shards, as the plan says, found ",
                          manifest.world()));
  }
  return Status::Ok();
}

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
