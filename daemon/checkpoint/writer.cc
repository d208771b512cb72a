#include "daemon/checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/helper_thread.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/save_task.h"
#include "daemon/telemetry/agreement.h"

namespace gaccd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kSlots = 2;
constexpr std::chrono::seconds kBeat{10};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of one generation on this rank. The training thread makes it; the helper fills in the results,
// under the writer's mutex.
struct Save {
  Generation generation;
  Manifest manifest;  // without the shards; rank 0 fills them in
  WindowShare window;
  std::size_t slot = 0;
  SaveEvent event;
  Clock::time_point start;
  bool committing = false;          // every rank has written: known to all
  std::optional<Status> written;    // by the helper
  ShardRecord record;               // the same, when `written` is OK
  std::optional<Status> committed;  // by the helper of rank 0
};

struct Slot {
  std::vector<std::byte> bytes;
  bool busy = false;  // the helper still reads it
};

// What the ranks tell each other.
enum class State : std::int64_t { kBusy, kDone, kFailed };
struct Report {
  std::int64_t state = 0;
  std::int64_t bytes = 0;
  std::int64_t window_samples = 0;
  std::int64_t window_loss = 0;  // the bits of the double
  std::array<std::int64_t, 4> sha256{};
  std::int64_t step = 0;
};
constexpr std::size_t kReportWords = sizeof(Report) / sizeof(std::int64_t);
static_assert(sizeof(Report) == 72);

SaveModes ModesOf(const CheckpointOptions& options) {
  return options.group_access ? SaveModes{0750, 0640} : SaveModes();
}

Result<WriterLease> TakeLease(const CheckpointOptions& options, const OwnerName& me) {
  GACCD_RETURN_IF_ERROR(
      MakeFolders(options.folder, ModesOf(options).folder).WithContext("checkpoints"));
  return WriterLease::Take(options.folder, me);
}

class Writer final : public CheckpointWriter {
 public:
  Writer(Communicator& comm, const CheckpointOptions& options, CheckpointIdentity identity,
         WriterRight right, SaveListener listener)
      : comm_(comm),
        options_(options),
        identity_(std::move(identity)),
        listener_(std::move(listener)),
        modes_(ModesOf(options)),
        lease_(std::move(right.lease)),
        epoch_(right.epoch) {}
  ~Writer() override { helper_.reset(); }

  Status Open();

  [[nodiscard]] std::int64_t epoch() const override { return epoch_; }
  [[nodiscard]] std::size_t staging_bytes() const override {
    return slots_[0].bytes.size() + slots_[1].bytes.size();
  }
  [[nodiscard]] bool pending() const override { return !pending_.empty(); }

  Status Save(const RunCursor& cursor, std::span<const BufferSource> sources,
              WindowShare window) override;
  Status Poll() override { return pending() ? Advance(/*wait=*/false) : Status::Ok(); }
  Status Finish() override;

 private:
  using SavePtr = std::shared_ptr<struct Save>;

  std::size_t WaitForSlot();
  Status Stage(const struct Save& save, std::span<const BufferSource> sources);
  void Write(const SavePtr& save);
  void Commit(const SavePtr& save, std::span<const Report> reports);
  Status Advance(bool wait);
  Report Tell(const SavePtr& save, bool wait);
  Status Settle(const SavePtr& save, Status status);

  Communicator& comm_;
  const CheckpointOptions options_;
  const CheckpointIdentity identity_;
  const SaveListener listener_;
  const SaveModes modes_;
  const std::optional<WriterLease> lease_;  // rank 0
  const std::int64_t epoch_;
  std::optional<Generation> last_;  // that was handed to Save()
  std::int64_t failed_in_row_ = 0;
  Status last_failure_;
  std::deque<SavePtr> pending_;  // oldest first; the same on all ranks

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Slot, kSlots> slots_;
  std::string prune_problem_;
  std::unique_ptr<HelperThread> helper_;  // last: it uses all of the above
};

Status Writer::Open() {
  const std::uint64_t bytes = PayloadBytes(identity_.buffers, comm_.rank(), comm_.size());
  Status ready;
  try {
    for (Slot& slot : slots_) slot.bytes.resize(bytes);
  } catch (const std::bad_alloc&) {
    ready = {ErrorKind::kOs, StrCat("checkpoints: no memory for twice ", bytes, " bytes")};
  }
  if (ready.ok()) {
    std::function<void()> beat;
    if (lease_) beat = [this] { lease_->Beat(); };
    auto helper = HelperThread::Start(beat, kBeat);
    if (helper.ok()) helper_ = *std::move(helper);
    ready = helper.status();
  }
  return AgreeOn(comm_, ready).status;
}

std::size_t Writer::WaitForSlot() {
  std::unique_lock lock(mutex_);
  const auto free = [this] {
    return std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.busy; });
  };
  changed_.wait(lock, [&] { return free() != slots_.end(); });
  const auto slot = free();
  slot->busy = true;
  return static_cast<std::size_t>(slot - slots_.begin());
}

Status Writer::Stage(const struct Save& save, std::span<const BufferSource> sources) {
  std::vector<std::byte>& bytes = slots_[save.slot].bytes;
  const std::uint64_t payload = PayloadBytes(save.manifest.buffers, comm_.rank(), comm_.size());
  // Only the last save of a preempted run has more than Open() took memory for: a window.
  if (bytes.size() < payload) bytes.resize(payload);
  std::uint64_t done = 0;
  for (const BufferSource& source : sources) {
    const ByteRange part = PartOf(source.spec, comm_.rank(), comm_.size());
    GACCD_RETURN_IF_ERROR(source.copy(part.offset, std::span(bytes).subspan(done, part.bytes)));
    done += part.bytes;
  }
  return Status::Ok();
}

Status Writer::Save(const RunCursor& cursor, std::span<const BufferSource> sources,
                    WindowShare window) {
  const Generation generation{epoch_, cursor.step, cursor.micro_step};
  if (last_ && *last_ == generation) return Status::Ok();
  last_ = generation;
  const auto start = Clock::now();
  while (pending_.size() >= kSlots) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  auto save = std::make_shared<struct Save>();
  save->generation = generation;
  save->window = window;
  save->start = start;
  save->slot = WaitForSlot();
  save->event = {.generation = generation, .wait_s = SecondsSince(start)};
  save->manifest = {.cursor = cursor,
                    .writer_epoch = epoch_,
                    .created_s = std::time(nullptr),
                    .program = identity_.program,
                    .job_text = identity_.job_text,
                    .plan = identity_.plan,
                    .block_bytes = options_.block_bytes,
                    .parameters = identity_.parameters};
  for (const BufferSource& source : sources) save->manifest.buffers.push_back(source.spec);
  const auto copy = Clock::now();
  GACCD_RETURN_IF_ERROR(Stage(*save, sources));
  save->event.copy_s = SecondsSince(copy);
  pending_.push_back(save);
  helper_->Add([this, save] { Write(save); });
  return Status::Ok();
}

// On the helper.
void Writer::Write(const SavePtr& save) {
  ShardIdentity identity{.rank = comm_.rank(),
                         .world = comm_.size(),
                         .step = save->generation.step,
                         .micro_step = save->generation.micro_step,
                         .writer_epoch = epoch_,
                         .block_bytes = options_.block_bytes,
                         .buffers = save->manifest.buffers};
  std::vector<std::span<const std::byte>> parts;
  std::span<const std::byte> rest = slots_[save->slot].bytes;
  for (const BufferSpec& buffer : identity.buffers) {
    const std::uint64_t bytes = PartOf(buffer, identity.rank, identity.world).bytes;
    parts.push_back(rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  const auto record = WriteShardOf(options_.folder, save->generation, identity, parts, modes_);
  const std::lock_guard lock(mutex_);
  slots_[save->slot].busy = false;
  save->written = record.status();
  if (record.ok()) {
    save->record = *record;
    save->record.window = save->window;
  }
  changed_.notify_all();
}

// On the training thread of rank 0; the work is the helper's.
void Writer::Commit(const SavePtr& save, std::span<const Report> reports) {
  for (const Report& report : reports) {
    ShardRecord& shard = save->manifest.shards.emplace_back();
    shard.bytes = static_cast<std::uint64_t>(report.bytes);
    std::memcpy(shard.sha256.data(), report.sha256.data(), shard.sha256.size());
    shard.window.samples = report.window_samples;
    std::memcpy(&shard.window.loss_sum, &report.window_loss, sizeof(double));
  }
  helper_->Add([this, save] {
    Status status = CommitManifest(options_.folder, save->manifest, *lease_, modes_);
    {
      const std::lock_guard lock(mutex_);
      save->committed = status;
      changed_.notify_all();
    }
    if (!status.ok()) return;
    const auto pruned = Prune(options_.folder, options_.keep, epoch_);
    const std::lock_guard lock(mutex_);
    if (!pruned.ok()) prune_problem_ = pruned.status().message();
  });
}

// What this rank has to say about the oldest save.
Report Writer::Tell(const SavePtr& save, bool wait) {
  std::unique_lock lock(mutex_);
  const bool mine = !save->committing || comm_.rank() == 0;
  const std::optional<Status>& result = save->committing ? save->committed : save->written;
  if (wait && mine) changed_.wait(lock, [&] { return result.has_value(); });
  Report report{.step = save->generation.step};
  if (!mine) {
    report.state = static_cast<std::int64_t>(State::kDone);
    return report;
  }
  if (!result) return report;
  report.state = static_cast<std::int64_t>(result->ok() ? State::kDone : State::kFailed);
  report.bytes = static_cast<std::int64_t>(save->record.bytes);
  report.window_samples = save->record.window.samples;
  std::memcpy(&report.window_loss, &save->record.window.loss_sum, sizeof(double));
  std::memcpy(report.sha256.data(), save->record.sha256.data(), save->record.sha256.size());
  return report;
}

// One exchange about the oldest save, and what follows from it.
Status Writer::Advance(bool wait) {
  const SavePtr save = pending_.front();
  const Report mine = Tell(save, wait);
  std::vector<Report> reports(static_cast<std::size_t>(comm_.size()));
  const std::vector<std::int64_t> counts(reports.size(), kReportWords);
  GACCD_RETURN_IF_ERROR(
      comm_.AllGather({&mine, kReportWords, DType::kI64}, counts,
                      {reports.data(), reports.size() * kReportWords, DType::kI64}));
  bool failed = false;
  bool busy = false;
  for (const Report& report : reports) {
    if (report.step != mine.step) {
      return {ErrorKind::kInternal, StrCat("checkpoints: expected all ranks to save step ",
                                           mine.step, ", found ", report.step)};
    }
    failed |= report.state == static_cast<std::int64_t>(State::kFailed);
    busy |= report.state == static_cast<std::int64_t>(State::kBusy);
  }
  if (failed) {
    Status own;
    if (mine.state == static_cast<std::int64_t>(State::kFailed)) {
      const std::lock_guard lock(mutex_);
      own = save->committing ? *save->committed : *save->written;
    }
    return Settle(save, AgreeOn(comm_, own).status);
  }
  if (busy) return Status::Ok();
  if (save->committing) return Settle(save, Status::Ok());
  save->committing = true;
  if (comm_.rank() == 0) Commit(save, reports);
  return Status::Ok();
}

// The save is over, on all ranks, with this status.
Status Writer::Settle(const SavePtr& save, Status status) {
  pending_.pop_front();
  failed_in_row_ = status.ok() ? 0 : failed_in_row_ + 1;
  last_failure_ = status;
  save->event.status = status;
  save->event.failed_in_row = failed_in_row_;
  save->event.total_s = SecondsSince(save->start);
  {
    const std::lock_guard lock(mutex_);
    save->event.bytes = save->record.bytes;
    save->event.pruned = std::exchange(prune_problem_, {});
  }
  if (!status.ok()) {
    helper_->Add(
        [this, save] { Discard(options_.folder, save->generation, comm_.rank(), comm_.size()); });
  }
  if (listener_) listener_(save->event);
  if (status.ok() || (status.kind() == ErrorKind::kIo && failed_in_row_ < options_.fail_limit)) {
    return Status::Ok();
  }
  if (status.kind() != ErrorKind::kIo) return status;
  return std::move(status).WithContext(
      StrCat("checkpoints: ", failed_in_row_, " saves failed in a row, the last"));
}

Status Writer::Finish() {
  while (pending()) GACCD_RETURN_IF_ERROR(Advance(/*wait=*/true));
  return last_failure_;
}

}  // namespace

BufferSource HostSource(std::string name, std::span<const std::byte> bytes, bool per_rank) {
  return {{std::move(name), bytes.size(), per_rank},
          [bytes](std::uint64_t offset, std::span<std::byte> out) {
            if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
            return Status::Ok();
          }};
}

Result<WriterRight> CheckpointWriter::Claim(Communicator& comm, const CheckpointOptions& options,
                                            const OwnerName& me) {
  WriterRight right;
  Result<std::string> numbers = std::string();
  if (comm.rank() == 0) {
    auto lease = TakeLease(options, me);
    if (lease.ok()) right.lease = *std::move(lease);
    numbers = right.lease
                  ? Result<std::string>(StrCat(right.lease->epoch(), " ", right.lease->job_since()))
                  : Result<std::string>(lease.status());
  }
  GACCD_ASSIGN_OR_RETURN(numbers, ShareFromRankZero(comm, numbers));
  std::istringstream(*numbers) >> right.epoch >> right.job_since;
  return right;
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Start(Communicator& comm,
                                                                  const CheckpointOptions& options,
                                                                  CheckpointIdentity identity,
                                                                  const OwnerName& me,
                                                                  SaveListener listener) {
  GACCD_ASSIGN_OR_RETURN(WriterRight right, Claim(comm, options, me));
  return Start(comm, options, std::move(identity), std::move(right), std::move(listener));
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Start(Communicator& comm,
                                                                  const CheckpointOptions& options,
                                                                  CheckpointIdentity identity,
                                                                  WriterRight right,
                                                                  SaveListener listener) {
  if (options.fail_limit < 1 || options.keep.newest < 1 || options.keep.every < 0 ||
      identity.plan.world() != comm.size()) {
    return Status(ErrorKind::kInternal, "checkpoints: fail_limit, keep or plan are out of range");
  }
  auto writer = std::make_unique<Writer>(comm, options, std::move(identity), std::move(right),
                                         std::move(listener));
  GACCD_RETURN_IF_ERROR(writer->Open());
  return std::unique_ptr<CheckpointWriter>(std::move(writer));
}

}  // namespace gaccd
