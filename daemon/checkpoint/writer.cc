#include "daemon/checkpoint/writer.h"

#include <algorithm>
#include <ctime>
#include <new>
#include <type_traits>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/save_task.h"

namespace gaccd {

// The report of a rank about the oldest save, exchanged by all ranks.
struct SaveReport {
  enum class Stage : std::int64_t { kBusy, kDone, kFailed };

  Stage stage = Stage::kBusy;
  std::int64_t step = 0;
  ShardRecord shard;
  double took_s = 0;  // if done
  GiveUp gives_up = GiveUp::kNo;
  std::int64_t stuck = 0;  // on rank 0: training need not wait for it
};

namespace {

using SaveStage = SaveReport::Stage;

constexpr std::size_t kReportWords = sizeof(SaveReport) / sizeof(std::int64_t);
static_assert(sizeof(SaveReport) == 104 && std::is_trivially_copyable_v<SaveReport>);

Status CheckSameStep(std::span<const SaveReport> reports, std::int64_t step) {
  for (const SaveReport& report : reports) {
    if (report.step == step) continue;
    return {ErrorKind::kInternal,
            StrCat("checkpoints: expected all ranks to save step ", step, ", found ", report.step)};
  }
  return Status::Ok();
}

}  // namespace

CheckpointWriter::CheckpointWriter(Communicator& comm, const CheckpointOptions& options,
                                   Manifest common, CheckpointLease lease, SaveListener listener)
    : comm_(comm),
      options_(options),
      common_(std::move(common)),
      listener_(std::move(listener)),
      state_(std::make_shared<SaveState>()) {
  common_.hosts = HostsText(comm.topology().hosts);
  state_->options = options;
  if (options.group_access) state_->modes = kGroupMayRead;
  state_->rank = comm.rank();
  state_->world = comm.size();
  state_->epoch = lease.epoch;
  state_->since = lease.training.since;
  state_->lease = std::move(lease.lease);
}

Status CheckpointWriter::StartThreads() {
  constexpr std::string_view kName = "the checkpoint thread";
  GACCD_ASSIGN_OR_RETURN(helper_,
                         WorkerThread::Start(kName, [state = state_] { RunTasks(*state); }));
  if (!state_->lease) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(lease_heartbeat_,
                         WorkerThread::Start(
                             kName, [state = state_] { state->lease->Beat(); }, kLeasePeriod));
  return Status::Ok();
}

void CheckpointWriter::EndThreads(std::chrono::milliseconds patience) {
  if (!helper_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.clear();
  }
  // If the helper hangs, the thread for signs of life hangs, too.
  const bool ended = helper_->End(patience);
  if (lease_heartbeat_) lease_heartbeat_->End(ended ? patience : std::chrono::milliseconds(0));
}

void CheckpointWriter::AddTask(std::function<void()> task) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  helper_->Wake();
}

std::size_t CheckpointWriter::staging_bytes() const {
  return state_->slots[0].bytes.size() + state_->slots[1].bytes.size();
}

Status CheckpointWriter::Open() {
  const std::uint64_t bytes = PayloadBytes(common_.buffers, comm_.rank(), comm_.size());
  Status ready;
  try {
    for (StagingBuffer& slot : state_->slots) slot.bytes.resize(bytes);
  } catch (const std::bad_alloc&) {
    ready = NoMemory("two copies of this rank's part of a checkpoint", 2 * bytes);
  }
  if (ready.ok()) ready = StartThreads();
  GACCD_RETURN_IF_ERROR(AgreeOn(comm_, ready).status);
  if (comm_.rank() != 0 || !options_.warn) return Status::Ok();
  if (const Status space = CheckSpace(*state_, common_.buffers); !space.ok()) {
    options_.warn(StrCat("checkpoints: ", space.message()));
  }
  return Status::Ok();
}

// A lack of memory is a failure of this save, on which all ranks agree.
Status CheckpointWriter::CopyToStaging(PendingSave& save, std::span<const BufferSource> sources) {
  StagingBuffer& slot = state_->slots[save.slot];
  const std::uint64_t payload = PayloadBytes(save.manifest.buffers, comm_.rank(), comm_.size());
  // Only the last save of a preempted run needs more memory than Start() has allocated: for a
  // partial update.
  try {
    if (slot.bytes.size() < payload) slot.bytes.resize(payload);
  } catch (const std::bad_alloc&) {
    {
      const std::lock_guard lock(state_->mutex);
      slot.busy = false;
      save.result = NoMemory("a copy of this rank's part of a checkpoint", payload);
    }
    for (const BufferSource& source : sources) GACCD_RETURN_IF_ERROR(source.copy(0, {}));
    return Status::Ok();
  }
  std::uint64_t done = 0;
  for (const BufferSource& source : sources) {
    const ByteRange part = PartRange(source.spec, comm_.rank(), comm_.size());
    GACCD_RETURN_IF_ERROR(
        source.copy(part.offset, std::span(slot.bytes).subspan(done, part.bytes)));
    done += part.bytes;
  }
  return Status::Ok();
}

Result<bool> CheckpointWriter::MakeRoom() {
  wait_began_.reset();
  const auto start = options_.now();
  while (!has_room() && !pending_.front()->stuck) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  room_wait_s_ += Since(start);
  return has_room();
}

Status CheckpointWriter::Save(const RunCursor& cursor, std::span<const BufferSource> sources,
                              PartialUpdate partial) {
  const Generation generation{state_->epoch, cursor.step, cursor.micro_step};
  if (last_ == generation) return given_up_;
  const auto start = options_.now();
  wait_began_ = start;
  while (!has_room()) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  last_ = generation;
  auto save = std::make_shared<PendingSave>();
  save->generation = generation;
  save->partial = partial;
  save->start = start;
  {
    // A slot is free if fewer than two saves are pending: none is settled while a rank still
    // writes.
    const std::lock_guard lock(state_->mutex);
    save->slot = state_->slots[0].busy ? 1 : 0;
    state_->slots[save->slot].busy = true;
  }
  save->event = {.generation = generation, .wait_s = std::exchange(room_wait_s_, 0) + Since(start)};
  save->manifest = common_;
  save->manifest.cursor = cursor;
  save->manifest.writer_epoch = state_->epoch;
  save->manifest.created_s = std::time(nullptr);
  save->manifest.block_bytes = options_.block_bytes;
  save->manifest.buffers.clear();
  for (const BufferSource& source : sources) save->manifest.buffers.push_back(source.spec);
  const auto copy = options_.now();
  GACCD_RETURN_IF_ERROR(CopyToStaging(*save, sources));
  save->event.copy_s = Since(copy);
  const bool staged = !save->result;
  pending_.push_back(save);
  if (staged) AddTask([state = state_, save] { WriteTask(*state, *save); });
  return Status::Ok();
}

void CheckpointWriter::Commit(const SavePtr& save, std::span<const SaveReport> reports) {
  save->committing = true;
  {
    const std::lock_guard lock(state_->mutex);
    save->took_s = 0;
    if (comm_.rank() != 0) return;
    save->result.reset();
  }
  for (const SaveReport& report : reports) save->manifest.shards.push_back(report.shard);
  AddTask([state = state_, save] { CommitTask(*state, *save); });
}

SaveReport CheckpointWriter::LocalReport(const PendingSave& save, bool wait) {
  std::unique_lock lock(state_->mutex);
  if (wait) {
    state_->changed.wait_for(lock, options_.exchange_every,
                             [&] { return save.result.has_value(); });
  }
  SaveReport report{.step = save.generation.step};
  if (!save.result) return report;
  report.stage = save.result->ok() ? SaveStage::kDone : SaveStage::kFailed;
  report.shard = save.record;
  report.took_s = save.took_s;
  return report;
}

Status CheckpointWriter::Advance(bool wait) {
  GACCD_RETURN_IF_ERROR(given_up_);
  const SavePtr save = pending_.front();
  SaveReport mine = LocalReport(*save, wait);
  if (wait) mine.gives_up = ShouldGiveUp();
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
  Commit(save, reports);
  return Status::Ok();
}

void CheckpointWriter::WarnWhenLate(PendingSave& save, std::span<const SaveReport> reports) {
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

// Uses the clock of rank 0.
GiveUp CheckpointWriter::ShouldGiveUp() const {
  const GiveUp asked = options_.give_up ? options_.give_up() : GiveUp::kNo;
  const bool limited = wait_began_ && options_.end_patience.count() > 0;
  if (asked != GiveUp::kNo || comm_.rank() != 0 || !limited) return asked;
  const bool late = options_.now() - *wait_began_ >= options_.end_patience;
  return late ? GiveUp::kDisk : GiveUp::kNo;
}

Status CheckpointWriter::StopWaiting(const PendingSave& save, GiveUp why) {
  const std::string what = StrCat("checkpoints: ", save.generation.name(), ": ");
  if (why == GiveUp::kStopRequested) {
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

// The save failed on some ranks: each contributes its own result.
Status CheckpointWriter::Fail(const SavePtr& save) {
  Status own;
  {
    const std::lock_guard lock(state_->mutex);
    if (save->result) own = *save->result;
  }
  return Settle(save, AgreeOn(comm_, own).status);
}

Status CheckpointWriter::Settle(const SavePtr& save, Status status) {
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
    AddTask([state = state_, save] {
      Discard(state->options.folder, save->generation, state->rank, state->world);
    });
  }
  if (listener_) listener_(save->event);
  if (status.ok() || (status.kind() == ErrorKind::kIo && failed_in_row_ < options_.fail_limit)) {
    return Status::Ok();
  }
  if (status.kind() != ErrorKind::kIo) return status;
  return {status.kind(), StrCat(status.message(), "; ", failed_in_row_, " saves failed in a row")};
}

// When the oldest save is over, the next one may have been written long ago.
Status CheckpointWriter::Poll() {
  for (std::size_t left = pending_.size() + 1; pending_.size() < left && pending();) {
    left = pending_.size();
    GACCD_RETURN_IF_ERROR(Advance(/*wait=*/false));
  }
  return Status::Ok();
}

Status CheckpointWriter::Finish() {
  wait_began_ = options_.now();
  while (pending()) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  return last_failure_;
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Start(Communicator& comm,
                                                                  const CheckpointOptions& options,
                                                                  Manifest common,
                                                                  CheckpointLease lease,
                                                                  SaveListener listener) {
  if (options.fail_limit < 1 || options.keep.newest < 1 || options.keep.every < 0 || !common.plan ||
      common.plan->world() != comm.size()) {
    return Status(ErrorKind::kInternal, "checkpoints: fail_limit, keep or plan are out of range");
  }
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter(
      comm, options, std::move(common), std::move(lease), std::move(listener)));
  GACCD_RETURN_IF_ERROR(writer->Open());
  return writer;
}

}  // namespace gaccd
