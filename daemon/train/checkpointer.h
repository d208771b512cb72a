// Checkpointer: the checkpoints of one training: when (SaveClock), what (the engine's buffers) and
// how (CheckpointWriter). Also which checkpoint a run resumes from.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/config/job.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/model/model.h"
#include "daemon/plan/plan.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/save_clock.h"

namespace gaccd {

struct CheckpointerOptions {
  CheckpointOptions checkpoints;
  SavePolicy policy;
  std::string program;                             // version and revision
  std::function<void(const SaveRecord&)> on_save;  // on rank 0, after a save; may be empty
};

// What the cursor of a run refers to. All of it outlives the checkpointer.
struct SavedRun {
  const Job& job;
  const Plan& plan;
  const Model& model;
  std::int64_t dataset_samples = 0;
  const BestSoFar& best;
  const LossScaleState* loss_scale = nullptr;  // null: not fp16

  [[nodiscard]] bool by_length() const { return !model.sample().cuts.empty(); }
};

// One per rank, on the training thread.
class Checkpointer {
 public:
  // Collective. `lease`: to write in the folder, claimed before the run looked for what it can
  // continue from. `step`: updates done so far.
  static Result<std::unique_ptr<Checkpointer>> Start(Communicator& comm, const SavedRun& run,
                                                     Engine& engine,
                                                     const CheckpointerOptions& options,
                                                     CheckpointLease lease, std::int64_t step);

  // Whether the boundary after update `step` is one to save at: one that is due by the clock, or
  // for which there was no room before. Every rank asks at every boundary.
  Result<bool> Due(std::int64_t step);
  // The state after update `step`, at its boundary or inside the next update. REQUIRES: no other
  // update is under way. Collective, as all that follows. Training waits for a copy.
  Status Save(std::int64_t step, std::int64_t samples);
  // The same, but where two saves are under way and a disk does not answer, training continues
  // without this one; Due() is true when it can be made.
  Status SaveOrPostpone(std::int64_t step, std::int64_t samples);
  // The same inside an update, after `micro_step` of its micro-steps (>= 1), on all ranks alike:
  // the accumulators and what each rank counted; a window whose loss is not finite is left out.
  Status SaveWindow(std::int64_t step, std::int64_t samples, std::int64_t micro_step);
  // At the boundaries without a save.
  Status Poll() { return writer_->Poll(); }
  // Waits for the disk. kIo when the last save failed.
  Status Finish() { return writer_->Finish(); }
  // Whether another save may succeed where Finish() gave this: not after options.fail_limit in a
  // row. The same on all ranks.
  [[nodiscard]] bool may_try_again(const Status& finished) const {
    return !finished.ok() && finished.kind() == ErrorKind::kIo && failed_in_row_ < fail_limit_;
  }
  // Leaves without waiting for the disk: CheckpointWriter::Abandon(). Not collective.
  void Abandon() { writer_->Abandon(); }

  // The newest that is known to be committed by this checkpointer.
  [[nodiscard]] const std::optional<Generation>& last_saved() const { return last_saved_; }

  // How long the last save would have taken had nobody waited for boundaries, on the slowest rank:
  // copy, write and commit. 0: there was none.
  [[nodiscard]] double last_save_s() const { return last_save_s_; }
  // Bytes that a rank writes in SaveWindow() / those in Save(). The same on all ranks.
  [[nodiscard]] double window_ratio() const { return window_ratio_; }
  // Staging memory of this rank.
  [[nodiscard]] std::size_t memory_bytes() const { return writer_->staging_bytes(); }

 private:
  Checkpointer(Communicator& comm, const SavedRun& run, Engine& engine, SavePolicy policy,
               std::int64_t step)
      : comm_(comm), run_(run), engine_(engine), clock_(policy, step) {}
  void OnSave(const SaveEvent& event);
  [[nodiscard]] SaveRecord RecordOf(const SaveEvent& event) const;
  [[nodiscard]] RunCursor CursorOf(std::int64_t step, std::int64_t samples) const;

  Communicator& comm_;
  SavedRun run_;
  Engine& engine_;
  SaveClock clock_;
  bool postponed_ = false;
  double last_save_s_ = 0;
  std::optional<Generation> last_saved_;
  std::int64_t failed_in_row_ = 0;
  std::int64_t fail_limit_ = 1;
  std::function<void(const SaveRecord&)> on_save_;
  double window_ratio_ = 1;
  std::vector<BufferSource> sources_;
  std::unique_ptr<CheckpointWriter> writer_;
};

// What a run continues from, if anything.
struct ResumePoint {
  std::optional<LoadedState> state;
  std::string folder = {};         // in which it was found
  std::vector<std::string> notes;  // for people: what was passed over, and why
};

struct ResumeSource {
  std::string folder;  // of this run's checkpoints
  // "auto", "never", or the path of a generation or of a run folder. auto looks in `folder` and
  // starts anew only where no checkpoint was ever finished.
  std::string from;
  // Of an attempt after the first of a SLURM job: the writer epoch from which on the checkpoints
  // belong to this job. They come before `from`, which is where the first attempt began.
  std::optional<std::int64_t> job_since;
};

// kData when there are checkpoints and none is whole, kConfig when it belongs to another model or
// would take other samples. Collective.
Result<ResumePoint> FindResumePoint(Communicator& comm, const SavedRun& run,
                                    const ResumeSource& source);

}  // namespace gaccd
