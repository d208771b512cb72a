#include "daemon/checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/process_memory.h"
#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/helper_thread.h"
#include "daemon/checkpoint/save_report.h"
#include "daemon/checkpoint/save_task.h"

namespace gaccd {
namespace {

constexpr std::chrono::seconds kBeat{10};

class Writer final : public CheckpointWriter {
 public:
  Writer(Communicator& comm, const CheckpointOptions& options, CheckpointIdentity identity,
         CheckpointLease lease, SaveListener listener);
  ~Writer() override {
    // The sign of life would hang, too.
    if (helper_ && !helper_->End(HelperThread::kPatience) && beater_) beater_->End({});
  }

  Status Open();

  [[nodiscard]] std::size_t staging_bytes() const override {
    return state_->slots[0].bytes.size() + state_->slots[1].bytes.size();
  }
  [[nodiscard]] bool pending() const override { return !pending_.empty(); }
  [[nodiscard]] bool has_room() const override { return pending_.size() < kSlots; }

  Result<bool> MakeRoom() override;
  Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
              WindowShare window) override;
  Status Poll() override;
  Status Finish() override;
  void Abandon() override;

 private:
  using SavePtr = std::shared_ptr<PendingSave>;

  Status StartHelpers();
  std::size_t TakeFreeSlot();
  Status Stage(PendingSave& save, std::span<const BufferSource> sources);
  Status Advance(bool wait);
  SaveReport LocalReport(const PendingSave& save, bool wait);
  void WarnWhenLate(PendingSave& save, std::span<const SaveReport> reports);
  [[nodiscard]] GiveUp WantsToGiveUp() const;
  Status StopWaiting(const PendingSave& save, GiveUp why);
  Status Fail(const SavePtr& save);
  void Commit(const SavePtr& save, std::span<const SaveReport> reports);
  Status Settle(const SavePtr& save, Status status);
  [[nodiscard]] double Since(std::chrono::steady_clock::time_point start) const {
    return SecondsSince(start, options_.now());
  }

  Communicator& comm_;
  const CheckpointOptions options_;
  const CheckpointIdentity identity_;
  const SaveListener listener_;
  const std::shared_ptr<SaveState> state_ = std::make_shared<SaveState>();
  std::optional<Generation> last_;  // that was handed to Save() and has not failed
  std::int64_t failed_in_row_ = 0;
  Status last_failure_;
  Status given_up_;
  // In Save() and Finish(): since when the disk has got nothing done.
  std::optional<std::chrono::steady_clock::time_point> wait_began_;
  std::deque<SavePtr> pending_;           // oldest first; the same on all ranks
  std::unique_ptr<HelperThread> beater_;  // rank 0: the lease is beaten while a task hangs, too
  std::unique_ptr<HelperThread> helper_;
};

Writer::Writer(Communicator& comm, const CheckpointOptions& options, CheckpointIdentity identity,
               CheckpointLease lease, SaveListener listener)
    : comm_(comm),
      options_(options),
      identity_(std::move(identity)),
      listener_(std::move(listener)) {
  state_->folder = options.folder;
  if (options.group_access) state_->modes = kGroupMayRead;
  state_->keep = options.keep;
  state_->block_bytes = options.block_bytes;
  state_->now = options.now;
  state_->rank = comm.rank();
  state_->world = comm.size();
  state_->epoch = lease.epoch;
  state_->lease = std::move(lease.lease);
}

Status Writer::StartHelpers() {
  GACCD_ASSIGN_OR_RETURN(helper_, HelperThread::Start({}, kBeat));
  if (!state_->lease) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(beater_,
                         HelperThread::Start([state = state_] { state->lease->Beat(); }, kBeat));
  return Status::Ok();
}

Status Writer::Open() {
  const std::uint64_t bytes = PayloadBytes(identity_.buffers, comm_.rank(), comm_.size());
  Status ready;
  try {
    for (Slot& slot : state_->slots) slot.bytes.resize(bytes);
  } catch (const std::bad_alloc&) {
    ready = NoMemory("two copies of this rank's part of a checkpoint", 2 * bytes);
  }
  if (ready.ok()) ready = StartHelpers();
  GACCD_RETURN_IF_ERROR(AgreeOn(comm_, ready).status);
  if (comm_.rank() != 0 || !options_.warn) return Status::Ok();
  if (const Status space = CheckSpace(*state_, identity_.buffers); !space.ok()) {
    options_.warn(StrCat("checkpoints: ", space.message()));
  }
  return Status::Ok();
}

// One is free when less than two saves are pending: none is settled while a rank still writes.
std::size_t Writer::TakeFreeSlot() {
  const std::lock_guard lock(state_->mutex);
  const std::size_t slot = state_->slots[0].busy ? 1 : 0;
  state_->slots[slot].busy = true;
  return slot;
}

// A lack of memory is a failure of this save, which all ranks settle together.
Status Writer::Stage(PendingSave& save, std::span<const BufferSource> sources) {
  Slot& slot = state_->slots[save.slot];
  const std::uint64_t payload = PayloadBytes(save.manifest.buffers, comm_.rank(), comm_.size());
  // Only the last save of a preempted run has more than Open() took memory for: a window.
  try {
    if (slot.bytes.size() < payload) slot.bytes.resize(payload);
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(state_->mutex);
    slot.busy = false;
    save.written = NoMemory("a copy of this rank's part of a checkpoint", payload);
    return Status::Ok();
  }
  std::uint64_t done = 0;
  for (const BufferSource& source : sources) {
    const ByteRange part = PartOf(source.spec, comm_.rank(), comm_.size());
    GACCD_RETURN_IF_ERROR(
        source.copy(part.offset, std::span(slot.bytes).subspan(done, part.bytes)));
    done += part.bytes;
  }
  return Status::Ok();
}

Result<bool> Writer::MakeRoom() {
  wait_began_.reset();
  while (!has_room()) {
    if (pending_.front()->stuck) return false;
    GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  }
  return true;
}

Status Writer::Save(const RunCursor& cursor, std::span<const BufferSource> sources,
                    WindowShare window) {
  const Generation generation{state_->epoch, cursor.step, cursor.micro_step};
  if (last_ == generation) return given_up_;
  const auto start = options_.now();
  wait_began_ = start;
  while (!has_room()) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  last_ = generation;
  auto save = std::make_shared<PendingSave>();
  save->generation = generation;
  save->window = window;
  save->start = start;
  save->slot = TakeFreeSlot();
  save->event = {.generation = generation, .wait_s = Since(start)};
  save->manifest = {.cursor = cursor,
                    .writer_epoch = state_->epoch,
                    .created_s = std::time(nullptr),
                    .program = identity_.program,
                    .job_text = identity_.job_text,
                    .plan = identity_.plan,
                    .block_bytes = options_.block_bytes,
                    .parameters = identity_.parameters};
  for (const BufferSource& source : sources) save->manifest.buffers.push_back(source.spec);
  const auto copy = options_.now();
  GACCD_RETURN_IF_ERROR(Stage(*save, sources));
  save->event.copy_s = Since(copy);
  const bool staged = !save->written;
  pending_.push_back(save);
  if (staged) helper_->Add([state = state_, save] { WriteTask(*state, *save); });
  return Status::Ok();
}

// On rank 0; the work is the helper's.
void Writer::Commit(const SavePtr& save, std::span<const SaveReport> reports) {
  for (const SaveReport& report : reports) {
    save->manifest.shards.push_back({.bytes = static_cast<std::uint64_t>(report.bytes),
                                     .sha256 = report.sha256,
                                     .window = {.samples = report.window_samples,
                                                .loss_sum = report.window_loss,
                                                .divisor = report.window_divisor}});
  }
  helper_->Add([state = state_, save] { CommitTask(*state, *save); });
}

// What this rank has to say about the oldest save, after options.exchange_every at the latest.
SaveReport Writer::LocalReport(const PendingSave& save, bool wait) {
  std::unique_lock lock(state_->mutex);
  const bool mine = !save.committing || comm_.rank() == 0;
  const std::optional<Status>& result = save.committing ? save.committed : save.written;
  if (wait && mine) {
    state_->changed.wait_for(lock, options_.exchange_every, [&] { return result.has_value(); });
  }
  SaveReport report{.step = save.generation.step};
  if (!mine) {
    report.stage = SaveStage::kDone;
    return report;
  }
  if (!result) return report;
  report.stage = result->ok() ? SaveStage::kDone : SaveStage::kFailed;
  report.bytes = static_cast<std::int64_t>(save.record.bytes);
  report.window_samples = save.record.window.samples;
  report.window_loss = save.record.window.loss_sum;
  report.window_divisor = save.record.window.divisor;
  report.sha256 = save.record.sha256;
  report.took_s = save.committing ? save.commit_s : save.write_s;
  return report;
}

// One exchange about the oldest save, and what follows from it.
Status Writer::Advance(bool wait) {
  GACCD_RETURN_IF_ERROR(given_up_);
  const SavePtr save = pending_.front();
  SaveReport mine = LocalReport(*save, wait);
  if (wait) mine.gives_up = WantsToGiveUp();
  if (comm_.rank() == 0 && options_.now() - save->start >= options_.patience) mine.stuck = 1;
  std::vector<SaveReport> reports(static_cast<std::size_t>(comm_.size()));
  const std::vector<std::int64_t> counts(reports.size(), kReportWords);
  GACCD_RETURN_IF_ERROR(
      comm_.AllGather({&mine, kReportWords, DType::kI64}, counts,
                      {reports.data(), reports.size() * kReportWords, DType::kI64}));
  GACCD_RETURN_IF_ERROR(CheckSameStep(reports, mine.step));
  const auto any = [&](SaveStage stage) {
    return std::ranges::find(reports, stage, &SaveReport::stage) != reports.end();
  };
  if (any(SaveStage::kBusy)) {
    WarnWhenLate(*save, reports);
    save->stuck = reports[0].stuck != 0;
    const GiveUp why = std::ranges::max(reports, {}, &SaveReport::gives_up).gives_up;
    return why == GiveUp::kNo ? Status::Ok() : StopWaiting(*save, why);
  }
  if (wait_began_) wait_began_ = options_.now();
  (save->committing ? save->event.commit_s : save->event.write_s) =
      std::ranges::max(reports, {}, &SaveReport::took_s).took_s;
  if (any(SaveStage::kFailed)) return Fail(save);
  if (save->committing) return Settle(save, Status::Ok());
  save->committing = true;
  if (comm_.rank() == 0) Commit(save, reports);
  return Status::Ok();
}

void Writer::WarnWhenLate(PendingSave& save, std::span<const SaveReport> reports) {
  if (comm_.rank() != 0 || !options_.warn || save.late) return;
  const double seconds = Since(save.start);
  if (seconds < std::chrono::duration<double>(options_.alarm_after).count()) return;
  save.late = true;
  const auto slow = static_cast<std::size_t>(
      std::ranges::find(reports, SaveStage::kBusy, &SaveReport::stage) - reports.begin());
  const auto others = std::ranges::count(reports, SaveStage::kBusy, &SaveReport::stage) - 1;
  const Topology& topology = comm_.topology();
  options_.warn(StrCat("save of update ", save.generation.step, " has been writing for ",
                       static_cast<std::int64_t>(seconds), " s: the file system of rank ", slow,
                       " on ", topology.hosts[slow],
                       others > 0 ? StrCat(" and of ", others, " more") : "", " does not answer"));
}

// Rank 0's clock counts.
GiveUp Writer::WantsToGiveUp() const {
  const GiveUp asked = options_.give_up ? options_.give_up() : GiveUp::kNo;
  const bool limited = wait_began_ && options_.end_patience.count() > 0;
  if (asked != GiveUp::kNo || comm_.rank() != 0 || !limited) return asked;
  const bool late = options_.now() - *wait_began_ >= options_.end_patience;
  return late ? GiveUp::kDisk : GiveUp::kNo;
}

Status Writer::StopWaiting(const PendingSave& save, GiveUp why) {
  const std::string what = StrCat("checkpoints: ", save.generation.name(), ": ");
  if (why == GiveUp::kAsked) {
    given_up_ = {ErrorKind::kInterrupted,
                 StrCat(what, "not waited for: an immediate exit was requested")};
  } else {
    given_up_ = {ErrorKind::kTempFail,
                 StrCat(what, "the file system of '", options_.folder, "' does not answer: not ",
                        "written after ", static_cast<std::int64_t>(Since(save.start)),
                        why == GiveUp::kNoTime ? " s, and there is no time left" : " s")};
  }
  Abandon();
  return given_up_;
}

// The save failed on some ranks: each hands in its own result.
Status Writer::Fail(const SavePtr& save) {
  Status own;
  {
    const std::lock_guard lock(state_->mutex);
    const std::optional<Status>& result = save->committing ? save->committed : save->written;
    if (result) own = *result;
  }
  return Settle(save, AgreeOn(comm_, own).status);
}

// The save is over, on all ranks, with this status.
Status Writer::Settle(const SavePtr& save, Status status) {
  pending_.pop_front();
  failed_in_row_ = status.ok() ? 0 : failed_in_row_ + 1;
  last_failure_ = status;
  save->event.status = status;
  save->event.failed_in_row = failed_in_row_;
  save->event.total_s = Since(save->start);
  {
    const std::lock_guard lock(state_->mutex);
    save->event.prune_problem = std::exchange(state_->prune_problem, {});
  }
  if (!status.ok()) {
    if (last_ == save->generation) last_.reset();
    helper_->Add([state = state_, save] {
      Discard(state->folder, save->generation, state->rank, state->world);
    });
  }
  if (listener_) listener_(save->event);
  if (status.ok() || (status.kind() == ErrorKind::kIo && failed_in_row_ < options_.fail_limit)) {
    return Status::Ok();
  }
  if (status.kind() != ErrorKind::kIo) return status;
  return {status.kind(),
          StrCat(status.message(), "; ", failed_in_row_, " saves failed in a row, this one last")};
}

// When the oldest is over, the next one may long be written.
Status Writer::Poll() {
  for (std::size_t left = pending_.size() + 1; pending_.size() < left && pending();) {
    left = pending_.size();
    GACCD_RETURN_IF_ERROR(Advance(/*wait=*/false));
  }
  return Status::Ok();
}

Status Writer::Finish() {
  wait_began_ = options_.now();
  while (pending()) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  return last_failure_;
}

void Writer::Abandon() {
  if (helper_) helper_->End({});
  if (beater_) beater_->End({});
}

}  // namespace

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Start(Communicator& comm,
                                                                  const CheckpointOptions& options,
                                                                  CheckpointIdentity identity,
                                                                  CheckpointLease lease,
                                                                  SaveListener listener) {
  if (options.fail_limit < 1 || options.keep.newest < 1 || options.keep.every < 0 ||
      identity.plan.world() != comm.size()) {
    return Status(ErrorKind::kInternal, "checkpoints: fail_limit, keep or plan are out of range");
  }
  auto writer = std::make_unique<Writer>(comm, options, std::move(identity), std::move(lease),
                                         std::move(listener));
  GACCD_RETURN_IF_ERROR(writer->Open());
  return std::unique_ptr<CheckpointWriter>(std::move(writer));
}

}  // namespace gaccd
