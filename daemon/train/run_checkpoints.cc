#include "daemon/train/run_checkpoints.h"

#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/config/help.h"
#include "daemon/optim/optimizer.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/launch.h"
#include "daemon/train/storage_limits.h"

namespace gaccd {
namespace {

CheckpointOptions CheckpointsOf(const Flags& flags, const Job& job) {
  return {
      .folder = CheckpointFolder(flags),
      .group_access = flags.group_access,
      .keep = {.newest = flags.keep, .every = flags.keep_every, .best = job.evaluation.keep_best},
      .fail_limit = flags.failed_saves};
}

}  // namespace

SavePolicy SavePolicyOf(const Flags& flags) {
  return {.every_updates = flags.save_every_updates,
          .every_seconds = flags.save_every_seconds.value_or(kDefaultSaveSeconds)};
}

Status CheckCheckpointFlags(const Flags& flags) {
  if (flags.run_dir) return Status::Ok();
  const bool asked = flags.save_every_updates > 0 || flags.save_every_seconds.value_or(0) > 0;
  const bool resumes = flags.resume != "auto" && flags.resume != "never";
  if (!asked && !resumes) return Status::Ok();
  return {ErrorKind::kUsage, "checkpoints need --run-dir=DIR: they are kept in DIR/ckpt"};
}

std::string CheckpointFolder(const Flags& flags) { return *flags.run_dir + "/ckpt"; }

Status AcquireLease(const Flags& flags, Session& session) {
  if (!flags.run_dir || !SavePolicyOf(flags).on()) return Status::Ok();
  const AttemptSource attempt = AttemptOf(session.slurm);
  const OwnerName me = MakeOwnerName(attempt.slurm_job_id.value_or(StrCat("local-", ::getpid())),
                                     attempt.restart_count, attempt.step_id);
  GACCD_ASSIGN_OR_RETURN(
      session.lease,
      CheckpointWriter::Claim(session.comm, CheckpointsOf(flags, session.setup->job), me));
  return Status::Ok();
}

Status ResumeRun(const Flags& flags, Session& session) {
  if (!flags.run_dir) return Status::Ok();
  const auto start = std::chrono::steady_clock::now();
  Trainer& trainer = *session.setup->trainer;
  ResumeSource source{.folder = CheckpointFolder(flags), .from = flags.resume, .job_since = {}};
  if (session.slurm.restart_count > 0 && session.lease) source.job_since = session.lease->job_since;
  GACCD_ASSIGN_OR_RETURN(const ResumePoint point,
                         FindResumePoint(session.comm, trainer.saved_run(), source));
  for (const std::string& note : point.notes) {
    session.resume_notes.push_back(StrCat("checkpoint skipped: ", note));
  }
  if (!point.state) return Status::Ok();
  // A job that was requeued has it on its command line all the same.
  if (flags.init_weights && session.slurm.restart_count == 0 && session.comm.rank() == 0) {
    LogWarning(StrCat(
        "--init-weights=", *flags.init_weights, " is ignored: the run resumes from checkpoint ",
        point.state->generation.PathIn(point.folder), "; --resume=never starts anew"));
  }
  const std::string changed = ChangedSince(point.state->manifest, session.setup->job);
  if (!changed.empty()) {
    session.resume_notes.push_back(StrCat("the job has changed since the checkpoint: ", changed));
  }
  GACCD_RETURN_IF_ERROR(trainer.Resume(*point.state));
  const Generation& from = point.state->generation;
  session.resumed = {.generation = from.name(),
                     .folder = point.folder,
                     .step = from.step,
                     .micro_step = from.micro_step,
                     .writer_epoch = from.epoch,
                     .samples_total = point.state->manifest.cursor.samples,
                     .skipped_checkpoints = static_cast<std::int64_t>(point.notes.size()),
                     .best = trainer.best()};
  for (const BufferSpec& buffer : point.state->manifest.buffers) {
    const std::int64_t parts = buffer.per_rank ? point.state->manifest.world() : 1;
    session.resumed->bytes += static_cast<std::int64_t>(buffer.bytes) * parts;
  }
  session.resumed->dur_s = SecondsSince(start);
  return Status::Ok();
}

double CheckpointBytes(const Session& session) {
  const FlatLayout& layout = session.setup->trainer->model().layout();
  const std::int64_t state = StateElements(session.setup->job.optimizer, layout.trainable_size());
  return static_cast<double>(layout.size() + state) * sizeof(float);
}

Result<std::unique_ptr<Checkpointer>> StartCheckpointer(const Flags& flags, Session& session,
                                                        RunReporter& reporter) {
  if (!session.lease) return std::unique_ptr<Checkpointer>();
  Trainer& trainer = *session.setup->trainer;
  CheckpointOptions checkpoints = CheckpointsOf(flags, session.setup->job);
  checkpoints.end_patience =
      LimitOfLastSave(std::chrono::seconds(flags.bound), CheckpointBytes(session));
  checkpoints.give_up = [&stops = *session.stops] {
    if (stops.asked_twice()) return GiveUp::kAsked;
    return stops.out_of_time() ? GiveUp::kNoTime : GiveUp::kNo;
  };
  return Checkpointer::Start(
      session.comm, trainer.saved_run(), trainer.engine(),
      {.checkpoints = std::move(checkpoints),
       .policy = SavePolicyOf(flags),
       .program = StrCat("gaccd ", GaccdVersion(), " ", GaccdRevision()),
       .on_save = [&reporter](const SaveRecord& save) { reporter.ReportSave(save); }},
      *std::move(session.lease), trainer.first_update());
}

std::string CheckpointAfter(std::int64_t updates, const Flags& flags, const Session& session,
                            const Checkpointer* checkpointer) {
  const std::optional<Generation> saved =
      checkpointer == nullptr ? std::nullopt : checkpointer->last_saved();
  if (saved && saved->step == updates && saved->micro_step == 0) {
    return saved->PathIn(CheckpointFolder(flags));
  }
  const auto& from = session.resumed;
  if (!from || from->step != updates || from->micro_step != 0) return {};
  return StrCat(from->folder, "/", from->generation);
}

}  // namespace gaccd
