#include "daemon/train/run_checkpointer.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/config/job_text.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

BufferSource MakeBufferSource(const BufferSpec& spec, Engine& engine, EngineBuffer buffer) {
  return {spec, [&engine, buffer](std::uint64_t offset, std::span<std::byte> out) {
            return engine.Read(buffer, static_cast<std::int64_t>(offset / sizeof(float)),
                               {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
          }};
}

constexpr std::string_view kRepeated = ", which is to be repeated (nothing of it is saved)";

// The same on all ranks. kConfig: a lack of memory.
bool IsFailedWrite(const Status& saved) {
  return !saved.ok() && (saved.kind() == ErrorKind::kIo || saved.kind() == ErrorKind::kConfig);
}

std::string Milliseconds(double seconds) { return Format("%.1f ms", seconds * 1e3); }

// For the last rank, whose part of each buffer is the largest and never empty.
double PartialUpdateRatio(std::vector<BufferSpec> buffers, const FlatLayout& layout, int ranks) {
  const auto bytes = [&] { return static_cast<double>(PayloadBytes(buffers, ranks - 1, ranks)); };
  const double plain = bytes();
  buffers.push_back(AccumulatorsBuffer(layout));
  return bytes() / plain;
}

}  // namespace

Result<std::unique_ptr<RunCheckpointer>> RunCheckpointer::Start(Communicator& comm,
                                                                const SavedRun& run, Engine& engine,
                                                                const CheckpointerOptions& options,
                                                                CheckpointLease lease,
                                                                std::int64_t step) {
  std::unique_ptr<RunCheckpointer> made(new RunCheckpointer(comm, options.policy, step));
  made->run_.emplace(run);
  made->engine_ = &engine;
  made->options_ = options;
  const FlatLayout& layout = run.model.layout();
  Manifest common{.program = options.program,
                  .job_text = JobText(run.job),
                  .plan = run.plan,
                  .parameters = ParameterRecords(layout),
                  .buffers = RunBuffers(layout, run.optimizer_elements())};
  for (const BufferSpec& buffer : common.buffers) {
    made->sources_.push_back(MakeBufferSource(
        buffer, engine,
        buffer.name == kParametersBuffer ? EngineBuffer::kParameters : EngineBuffer::kOptimizer));
  }
  made->partial_update_ratio_ = PartialUpdateRatio(common.buffers, layout, comm.size());
  CheckpointOptions& checkpoints = made->options_.checkpoints;
  if (!checkpoints.warn) checkpoints.warn = [](const std::string& text) { LogWarning(text); };
  GACCD_ASSIGN_OR_RETURN(
      made->writer_,
      CheckpointWriter::Start(comm, checkpoints, std::move(common), std::move(lease),
                              [raw = made.get()](const SaveEvent& event) { raw->OnSave(event); }));
  return made;
}

void RunCheckpointer::BeginRun(StopAgreement* stops, const ProgressNotifier* progress,
                               TrainingSummary* summary) {
  stops_ = stops;
  progress_ = progress;
  summary_ = summary;
}

void RunCheckpointer::BeginUpdate(std::int64_t restored) {
  if (stops_ == nullptr) return;
  if (saves()) stops_->ExpectSave(last_save_s_, partial_update_ratio_);
  stops_->BeginUpdate(restored);
}

Result<bool> RunCheckpointer::InterruptsUpdate(std::int64_t index, std::int64_t done,
                                               const UpdateProgram& program) {
  if (stops_ == nullptr) return false;
  // The ranks occasionally exchange requests, and wait for each other.
  progress_->SetPhase(heartbeat::Phase::kReduce, index, done);
  GACCD_ASSIGN_OR_RETURN(const StopDecision here,
                         stops_->BetweenMicroSteps(done, program.computed));
  if (!here.stops()) return false;
  left_ = {
      .index = index, .done = done, .place = DescribePosition(program, done), .decision = here};
  if (here.action == StopAction::kSaveStop && !program.resumable) {
    left_->decision.action = StopAction::kSaveBeforeStop;
  }
  return true;
}

Result<bool> RunCheckpointer::SaveIsDue(std::int64_t step, bool last) {
  if (!saves() || last) return saves();
  GACCD_ASSIGN_OR_RETURN(const bool due, clock_.Due(comm_, step));
  return due || (postponed_ && writer_->has_room());
}

Status RunCheckpointer::AtBoundary(std::int64_t step, bool save, bool must) {
  GACCD_RETURN_IF_ERROR(Poll());
  if (!save || !saves()) return Status::Ok();
  return AbortWaitIfRequested(
      NoteSharedFailure(Save(must ? When::kNow : When::kWhenTheDiskAnswers)),
      StrCat("after update ", step), ErrorKind::kTempFail);
}

Status RunCheckpointer::Finish() {
  if (!saves()) return Status::Ok();
  return AbortWaitIfRequested(NoteSharedFailure(FinishOrTryAgain()), "after the last update",
                              ErrorKind::kTempFail);
}

Status RunCheckpointer::Save(When when) {
  progress_->SetPhase(heartbeat::Phase::kSave, summary_->updates);
  bool room = true;
  if (when == When::kWhenTheDiskAnswers) {
    GACCD_ASSIGN_OR_RETURN(room, writer_->MakeRoom());
  }
  if (left_ && left_->decision.action == StopAction::kSaveStop) {
    GACCD_RETURN_IF_ERROR(SavePartialUpdate(left_->done));
  } else if (room) {
    postponed_ = false;
    GACCD_RETURN_IF_ERROR(writer_->Save(Cursor(), sources_));
  } else if (!std::exchange(postponed_, true) && comm_.rank() == 0) {
    LogWarning(StrCat("the save of update ", summary_->updates, " is postponed: the two before it ",
                      "are not written yet; training continues"));
  }
  if (stops_ != nullptr) stops_->Saved();
  return Status::Ok();
}

Status RunCheckpointer::SavePartialUpdate(std::int64_t micro_step) {
  GACCD_ASSIGN_OR_RETURN(const PartialUpdate share, engine_->GetPartialUpdate());
  // A partial update with a non-finite loss would be rejected at the resume; without it, its update
  // restarts, and the policy for such updates applies then.
  const bool finite = std::isfinite(share.loss_sum) && std::isfinite(share.divisor);
  const Status agreed =
      AgreeOn(comm_, finite ? Status::Ok() : Status(ErrorKind::kData, "the loss is not finite"))
          .status;
  if (!agreed.ok() && agreed.kind() == ErrorKind::kData) {
    left_->decision.action = StopAction::kSaveBeforeStop;
    return writer_->Save(Cursor(), sources_);
  }
  GACCD_RETURN_IF_ERROR(agreed);
  RunCursor cursor = Cursor();
  cursor.micro_step = micro_step;
  cursor.by_length = run_->by_length();
  std::vector<BufferSource> sources = sources_;
  sources.push_back(MakeBufferSource(AccumulatorsBuffer(run_->model.layout()), *engine_,
                                     EngineBuffer::kGradients));
  return writer_->Save(cursor, sources, share);
}

RunCursor RunCheckpointer::Cursor() const {
  return {
      .step = summary_->updates,
      .samples = summary_->samples,
      .optimizer_updates = engine_->optimizer_updates(),
      .seed = run_->job.seed,
      .dataset_samples = run_->dataset_samples,
      .content = run_->content,
      .best = run_->best,
      .loss_scale = run_->loss_scale != nullptr ? std::optional(*run_->loss_scale) : std::nullopt};
}

Status RunCheckpointer::FinishOrTryAgain() {
  constexpr std::chrono::seconds kPause{2};
  Status saved = writer_->Finish();
  // The same on all ranks.
  while (!saved.ok() && saved.kind() == ErrorKind::kIo &&
         failed_in_row_ < options_.checkpoints.fail_limit) {
    std::this_thread::sleep_for(kPause);
    if (stops_ != nullptr) {
      GACCD_RETURN_IF_ERROR(stops_->AfterStage("while the last save was tried again"));
    }
    GACCD_RETURN_IF_ERROR(Save());
    saved = writer_->Finish();
  }
  return saved;
}

Status RunCheckpointer::SaveAndFinish() {
  GACCD_RETURN_IF_ERROR(Save());
  return writer_->Finish();
}

// A failed save does not change why the run stops: the previous checkpoint is kept. If the disk has
// no room for a partial update, it may have room for the smaller state before it.
Status RunCheckpointer::Stop(const std::string& where, const StopDecision& decision) {
  if (!decision.saves_and_stops() || !saves()) {
    stops_->LimitExit(decision.kind);
    return decision.ToStatus(where, false);
  }
  const bool inside = left_ && left_->decision.action == StopAction::kSaveStop;
  Status saved = SaveAndFinish();
  if (inside && left_->decision.action == StopAction::kSaveStop && IsFailedWrite(saved)) {
    left_->decision.action = StopAction::kSaveBeforeStop;
    saved = SaveAndFinish();
  }
  const bool repeated = inside && left_->decision.action != StopAction::kSaveStop;
  const std::string place = StrCat(where, repeated ? kRepeated : "");
  if (!saved.ok() && saved.kind() == ErrorKind::kInterrupted) {
    return AbortWaitIfRequested(std::move(saved), place, decision.kind);
  }
  const Status status = decision.ToStatus(place, saved.ok());
  if (saved.ok()) return status;
  return {status.kind(), StrCat(status.message(), ": ", saved.message())};
}

Status RunCheckpointer::StopInside() {
  const bool repeated = left_->decision.action == StopAction::kSaveBeforeStop;
  return Stop(
      StrCat("inside update ", left_->index + 1, " ", left_->place, repeated ? kRepeated : ""),
      left_->decision);
}

Status RunCheckpointer::AbortWaitIfRequested(Status saved, const std::string& where,
                                             ErrorKind kind) {
  if (saved.ok() || saved.kind() != ErrorKind::kInterrupted) return saved;
  Abandon();
  if (stops_ != nullptr) stops_->LimitExit(kind);
  return {kind, StrCat("stopped by a second request ", where, ", not saved")};
}

Status RunCheckpointer::NoteSharedFailure(Status saved) const {
  if (!saved.ok() && saved.kind() == ErrorKind::kIo) summary_->failed_together = true;
  return saved;
}

// The warning is also an event of the run, which serves as the alarm.
void RunCheckpointer::OnSave(const SaveEvent& event) {
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
                      event.failed_in_row, " in a row), ",
                      last_saved_ ? "the previous one is kept" : "this attempt has saved none"));
  }
  if (!event.prune_problem.empty()) {
    LogWarning(StrCat("old checkpoints could not be removed: ", event.prune_problem));
  }
  if (options_.on_save) options_.on_save(Record(event));
}

SaveRecord RunCheckpointer::Record(const SaveEvent& event) const {
  std::uint64_t bytes = 0;
  for (const BufferSource& source : sources_) bytes += source.spec.bytes;
  if (event.generation.micro_step > 0) {
    bytes +=
        AccumulatorsBuffer(run_->model.layout()).bytes * static_cast<std::uint64_t>(comm_.size());
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

}  // namespace gaccd
