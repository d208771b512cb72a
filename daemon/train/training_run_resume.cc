// How a run continues from a checkpoint.
#include <chrono>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/config/job.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/run_options.h"
#include "daemon/train/start_point.h"
#include "daemon/train/training_run.h"

namespace gaccd {

RankStatus TrainingRun::Resume() {
  reporter_->Report(StageRecord{"checkpoint"});
  if (!flags_.run_dir) return LoadInitWeights();
  const auto start = std::chrono::steady_clock::now();
  ResumeSource source{
      .folder = MakeCheckpointOptions(flags_, job_).folder, .from = flags_.resume, .job_since = {}};
  ResumePoint point;
  if (Agreement all = AgreeOn(comm_, FindPoint(&source, &point)); !all.status.ok()) return all;
  // Before the folder says that a training begins. One that continues does not need the file, which
  // may not exist any more.
  if (!point.state) {
    if (RankStatus loaded = LoadInitWeights(); !loaded.status.ok()) return loaded;
  }
  Agreement all = AgreeOn(comm_, ResumeOnRank(source, point));
  if (resumed_) resumed_->dur_s = SecondsSince(start);
  return all;
}

Status TrainingRun::FindPoint(ResumeSource* source, ResumePoint* point) {
  if (session_.ranks.slurm.restart_count > 0 && lease_) source->job_since = lease_->job_since;
  if (lease_) {
    source->training = lease_->training;
  } else {
    GACCD_ASSIGN_OR_RETURN(source->training,
                           CheckpointWriter::FindNewestTraining(comm_, source->folder));
  }
  GACCD_ASSIGN_OR_RETURN(*point, FindResumePoint(comm_, trainer_->saved_run(), *source));
  return Status::Ok();
}

Status TrainingRun::ResumeOnRank(const ResumeSource& source, const ResumePoint& point) {
  GACCD_RETURN_IF_ERROR(BeginTraining(source, point));
  for (const std::string& note : point.notes) {
    resume_notes_.push_back(StrCat("checkpoint skipped: ", note));
  }
  if (!point.state) return Status::Ok();
  const Generation& from = point.state->generation;
  // A requeued job still has the flag on its command line.
  if (flags_.init_weights && session_.ranks.slurm.restart_count == 0 && comm_.rank() == 0) {
    LogWarning(StrCat("--init-weights=", *flags_.init_weights,
                      " is ignored: the run resumes from checkpoint ", from.PathIn(point.folder),
                      "; --resume=never starts from scratch"));
  }
  const std::string changed = CompareJobs(point.state->job, job_).reported;
  if (!changed.empty()) {
    resume_notes_.push_back(StrCat("the job has changed since the checkpoint: ", changed));
  }
  GACCD_RETURN_IF_ERROR(trainer_->Resume(*point.state, source.IsOwn(point)));
  resumed_ = {.generation = from.name(),
              .folder = point.folder,
              .step = from.step,
              .micro_step = from.micro_step,
              .writer_epoch = from.epoch,
              .samples_total = point.state->manifest.cursor.samples,
              .skipped_checkpoints = static_cast<std::int64_t>(point.notes.size()),
              .best = trainer_->best()};
  for (const BufferSpec& buffer : point.state->manifest.buffers) {
    const std::int64_t parts = buffer.per_rank ? point.state->manifest.world() : 1;
    resumed_->bytes += static_cast<std::int64_t>(buffer.bytes) * parts;
  }
  return Status::Ok();
}

Status TrainingRun::BeginTraining(const ResumeSource& source, const ResumePoint& point) {
  const std::string from = source.NewTraining(point);
  const bool again = from.empty() && source.from == "auto" && !source.training.from.empty() &&
                     (!point.state || point.folder != source.folder);
  const bool begins = lease_ && !from.empty();
  if (begins) GACCD_RETURN_IF_ERROR(lease_->BeginTraining(from));
  if (const std::string back = source.GoesBackTo(point); lease_ && !back.empty()) {
    GACCD_RETURN_IF_ERROR(lease_->GoBackTo(back));
  }
  if (comm_.rank() != 0) return Status::Ok();
  if (begins || again) {
    const std::string warning =
        EarlierTrainingWarning(source.folder, lease_ ? lease_->training : source.training, again);
    if (!warning.empty()) LogWarning(warning);
  }
  if (!point.state && source.from == "auto" && !again) {
    const std::int64_t earlier = CountAttempts(*flags_.run_dir) - 1;
    if (earlier > 0) {
      resume_notes_.push_back(StrCat("'", *flags_.run_dir, "' has ",
                                     Counted(earlier, "earlier attempt"),
                                     " and no checkpoint: the training begins at update 1"));
    }
  }
  return Status::Ok();
}

}  // namespace gaccd
