#include "daemon/train/checkpointer.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/saved_job.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/config/job_text.h"
#include "daemon/optim/optimizer.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

BufferSource SourceOf(const BufferSpec& spec, Engine& engine, EngineBuffer buffer) {
  return {spec, [&engine, buffer](std::uint64_t offset, std::span<std::byte> out) {
            return engine.Read(buffer, static_cast<std::int64_t>(offset / sizeof(float)),
                               {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
          }};
}

std::int64_t OptimizerElements(const SavedRun& run) {
  return StateElements(run.job.optimizer, run.model.layout().trainable_size());
}

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  return text;
}

// Of the last rank, which has as much of each buffer as any, and never nothing.
double WindowRatio(std::vector<BufferSpec> buffers, const FlatLayout& layout, int ranks) {
  const auto bytes = [&] { return static_cast<double>(PayloadBytes(buffers, ranks - 1, ranks)); };
  const double plain = bytes();
  buffers.push_back(AccumulatorsBuffer(layout));
  return bytes() / plain;
}

AcceptManifest Accept(const SavedRun& run) {
  return [&run](const Manifest& manifest) -> Status {
    GACCD_RETURN_IF_ERROR(CheckParameters(manifest, run.model.layout()));
    GACCD_RETURN_IF_ERROR(CheckSameOptimizer(manifest, run.job));
    GACCD_ASSIGN_OR_RETURN(const Job saved, SavedJob(manifest));
    GACCD_RETURN_IF_ERROR(
        CheckSameGroups(manifest, run.model.layout(), saved.optimizer, run.job.optimizer));
    GACCD_RETURN_IF_ERROR(CheckFits(manifest, run.model.layout(), OptimizerElements(run)));
    GACCD_RETURN_IF_ERROR(CheckSameModel(manifest, run.job));
    return CheckSameSamples(manifest, run.job, run.plan, run.dataset_samples);
  };
}

std::string Stripped(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Of a path given by name: there must be something whole.
Result<ResumePoint> ResumeFrom(Communicator& comm, const SavedRun& run, const std::string& from) {
  const std::string path = Stripped(from);
  ResumePoint point;
  if (auto generation = ParseGenerationName(path.substr(path.rfind('/') + 1))) {
    generation->committed = true;
    auto state = LoadGeneration(comm, FolderOf(path), *generation, Accept(run));
    if (!state.ok()) return std::move(state).status().WithContext("--resume");
    point.state = *std::move(state);
    point.folder = FolderOf(path);
    return point;
  }
  GACCD_ASSIGN_OR_RETURN(LoadOutcome outcome, LoadNewest(comm, path + "/ckpt", Accept(run)));
  if (!outcome.state) {
    return Status(ErrorKind::kData,
                  StrCat("--resume: '", path, "/ckpt' holds no checkpoint that is complete"));
  }
  return ResumePoint{std::move(outcome.state), path + "/ckpt", std::move(outcome.refused)};
}

Result<ResumePoint> ResumeAuto(Communicator& comm, const SavedRun& run, const std::string& folder,
                               std::int64_t since) {
  GACCD_ASSIGN_OR_RETURN(LoadOutcome outcome, LoadNewest(comm, folder, Accept(run), since));
  if (!outcome.state && outcome.damaged > 0) {
    return Status(ErrorKind::kData,
                  StrCat("'", folder, "' has ", outcome.damaged,
                         " checkpoints and none is complete; --resume=never starts anew: ",
                         outcome.refused.front()));
  }
  return ResumePoint{std::move(outcome.state), folder, std::move(outcome.refused)};
}

}  // namespace

Result<std::unique_ptr<Checkpointer>> Checkpointer::Start(Communicator& comm, const SavedRun& run,
                                                          Engine& engine,
                                                          const CheckpointerOptions& options,
                                                          CheckpointLease lease,
                                                          std::int64_t step) {
  std::unique_ptr<Checkpointer> checkpointer(
      new Checkpointer(comm, run, engine, options.policy, step));
  checkpointer->on_save_ = options.on_save;
  const FlatLayout& layout = run.model.layout();
  CheckpointIdentity identity{.program = options.program,
                              .job_text = JobText(run.job),
                              .plan = run.plan,
                              .parameters = ParameterRecords(layout),
                              .buffers = RunBuffers(layout, OptimizerElements(run))};
  for (const BufferSpec& buffer : identity.buffers) {
    checkpointer->sources_.push_back(SourceOf(
        buffer, engine,
        buffer.name == kParametersBuffer ? EngineBuffer::kParameters : EngineBuffer::kOptimizer));
  }
  checkpointer->window_ratio_ = WindowRatio(identity.buffers, layout, comm.size());
  CheckpointOptions checkpoints = options.checkpoints;
  checkpointer->fail_limit_ = checkpoints.fail_limit;
  if (!checkpoints.warn) checkpoints.warn = [](const std::string& text) { LogWarning(text); };
  GACCD_ASSIGN_OR_RETURN(
      checkpointer->writer_,
      CheckpointWriter::Start(
          comm, checkpoints, std::move(identity), std::move(lease),
          [raw = checkpointer.get()](const SaveEvent& event) { raw->OnSave(event); }));
  return checkpointer;
}

RunCursor Checkpointer::CursorOf(std::int64_t step, std::int64_t samples) const {
  return {
      .step = step,
      .samples = samples,
      .optimizer_updates = engine_.optimizer_updates(),
      .seed = run_.job.seed,
      .dataset_samples = run_.dataset_samples,
      .best = run_.best,
      .loss_scale = run_.loss_scale != nullptr ? std::optional(*run_.loss_scale) : std::nullopt};
}

Result<bool> Checkpointer::Due(std::int64_t step) {
  GACCD_ASSIGN_OR_RETURN(const bool due, clock_.Due(comm_, step));
  return due || (postponed_ && writer_->has_room());
}

Status Checkpointer::SaveOrPostpone(std::int64_t step, std::int64_t samples) {
  GACCD_ASSIGN_OR_RETURN(const bool room, writer_->MakeRoom());
  if (room) return Save(step, samples);
  if (!std::exchange(postponed_, true) && comm_.rank() == 0) {
    LogWarning(StrCat("the save of update ", step, " is postponed: the two before it are not ",
                      "written yet; training continues"));
  }
  return Status::Ok();
}

Status Checkpointer::Save(std::int64_t step, std::int64_t samples) {
  postponed_ = false;
  return writer_->Save(CursorOf(step, samples), sources_);
}

Status Checkpointer::SaveWindow(std::int64_t step, std::int64_t samples, std::int64_t micro_step) {
  GACCD_ASSIGN_OR_RETURN(const WindowShare share, engine_.Window());
  // A window whose loss is not finite would be refused at the resume: without it, its update is
  // begun again, and the policy for such updates is applied then.
  const bool finite = std::isfinite(share.loss_sum) && std::isfinite(share.divisor);
  const Status agreed =
      AgreeOn(comm_, finite ? Status::Ok() : Status(ErrorKind::kData, "the loss is not finite"))
          .status;
  if (!agreed.ok() && agreed.kind() == ErrorKind::kData) return Save(step, samples);
  GACCD_RETURN_IF_ERROR(agreed);
  RunCursor cursor = CursorOf(step, samples);
  cursor.micro_step = micro_step;
  cursor.by_length = run_.by_length();
  std::vector<BufferSource> sources = sources_;
  sources.push_back(
      SourceOf(AccumulatorsBuffer(run_.model.layout()), engine_, EngineBuffer::kGradients));
  return writer_->Save(cursor, sources, share);
}

// A warning is also an event of the run, which is the alarm.
void Checkpointer::OnSave(const SaveEvent& event) {
  failed_in_row_ = event.failed_in_row;
  if (event.status.ok()) {
    last_save_s_ = event.save_s();
    last_saved_ = event.generation;
  }
  if (comm_.rank() != 0) return;
  if (event.status.ok()) {
    LogInfo(StrCat("checkpoint ", event.generation.name(), ": training paused for ",
                   Milliseconds(event.copy_s + event.wait_s), ", the disk took ",
                   Milliseconds(event.write_s + event.commit_s), ", committed after ",
                   Milliseconds(event.total_s)));
  } else {
    LogWarning(StrCat(event.status.message(), "; checkpoint ", event.generation.name(), " failed (",
                      event.failed_in_row, " in a row), the previous one remains"));
  }
  if (!event.prune_problem.empty()) {
    LogWarning(StrCat("old checkpoints could not be removed: ", event.prune_problem));
  }
  if (on_save_) on_save_(RecordOf(event));
}

SaveRecord Checkpointer::RecordOf(const SaveEvent& event) const {
  std::uint64_t bytes = 0;
  for (const BufferSource& source : sources_) bytes += source.spec.bytes;
  if (event.generation.micro_step > 0) {
    bytes +=
        AccumulatorsBuffer(run_.model.layout()).bytes * static_cast<std::uint64_t>(comm_.size());
  }
  return {.generation = event.generation.name(),
          .step = event.generation.step,
          .micro_step = event.generation.micro_step,
          .writer_epoch = event.generation.epoch,
          .reason = event.status.ok() ? "" : event.status.message(),
          .failed_in_row = event.failed_in_row,
          .bytes = static_cast<std::int64_t>(bytes),
          .stall_s = event.copy_s + event.wait_s,
          .dur_s = event.total_s};
}

Result<ResumePoint> FindResumePoint(Communicator& comm, const SavedRun& run,
                                    const ResumeSource& source) {
  if (source.job_since && source.from != "auto") {
    GACCD_ASSIGN_OR_RETURN(ResumePoint own,
                           ResumeAuto(comm, run, source.folder, *source.job_since));
    if (own.state) return own;
  }
  if (source.from == "never") return ResumePoint{};
  if (source.from != "auto") return ResumeFrom(comm, run, source.from);
  return ResumeAuto(comm, run, source.folder, 0);
}

}  // namespace gaccd
