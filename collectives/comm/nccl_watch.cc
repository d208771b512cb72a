#include "collectives/comm/nccl_watch.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/comm/wait.h"

namespace gaccd {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollPeriod{5};
constexpr milliseconds kIdlePollPeriod{200};
// A rank may end regularly while its last messages are still arriving.
constexpr milliseconds kDeathGrace{300};

// Connections break before a dying process counts as ended, as the driver frees its GPU first. On
// an H100, 100 ms were too short and 500 ms sufficient.
milliseconds ProcessExitLimit(milliseconds bound) {
  return std::min(bound / 4, milliseconds(3'000));
}

// A watch shows a sign of life at least every kIdlePollPeriod; a process without one for this long
// is stalled.
milliseconds StalledAfter(milliseconds bound) {
  return std::clamp(bound / 4, 3 * kIdlePollPeriod, milliseconds(2'000));
}

}  // namespace

NcclWatch::NcclWatch(NcclWatchOptions options)
    : options_(std::move(options)), pending_(options_.bound) {}

Result<std::unique_ptr<NcclWatch>> NcclWatch::Start(NcclWatchOptions options) {
  std::unique_ptr<NcclWatch> watch(new NcclWatch(std::move(options)));
  GACCD_ASSIGN_OR_RETURN(
      watch->thread_, StartThread("the thread that watches NCCL", [w = watch.get()] { w->Run(); }));
  return watch;
}

NcclWatch::~NcclWatch() { End(); }

std::chrono::nanoseconds NcclWatch::SetUpLimit() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(options_.bound * kNcclSetUpShare);
}

std::chrono::nanoseconds NcclWatch::EnqueueLimit() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(options_.bound *
                                                              Deadline::kWaitShare);
}

Status NcclWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<CommFailure> NcclWatch::lost() const {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) return std::nullopt;
  CommFailure lost = lost_;
  for (const MissingRank& ended : EndedPeers()) lost.missing.push_back(ended);
  lost.missing = Offenders(std::move(lost.missing));
  return lost;
}

Status NcclWatch::Fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  return FailLocked(status);
}

Status NcclWatch::FailLocked(const Status& status) {
  if (!failure_.ok()) return failure_;
  failure_ = {status.kind(), StrCat(RankOnHost(options_.rank, options_.hosts), ", GPU ",
                                    options_.device, ": ", status.message())};
  lost_.entry = pending_.empty() ? newest_ : pending_.oldest();
  options_.board.PublishFailure();
  // Not waited for: the caller has an error to report, and the abort may never end.
  end_ = NcclEnd::Abort(*options_.api, std::exchange(options_.comm, nullptr));
  wake_.notify_all();
  idle_.notify_all();
  return failure_;
}

bool NcclWatch::AbortEndsWithin(std::chrono::nanoseconds limit) const {
  std::unique_lock lock(mutex_);
  const NcclEnd end = end_;  // shares the state
  lock.unlock();
  return end.Wait(limit);
}

Status NcclWatch::ReadyLocked() const {
  GACCD_RETURN_IF_ERROR(failure_);
  if (options_.comm != nullptr) return Status::Ok();
  return {ErrorKind::kInternal, "the NCCL communicator has ended"};
}

// CUDA blocks the host if too much work of a stream is pending, perhaps work that waits for a lost
// rank: the watch must be able to abort meanwhile.
Status NcclWatch::RecordUnlocked(cudaEvent_t event, cudaStream_t stream, Lock& lock) {
  lock.unlock();
  const Status recorded = CudaStatus(cudaEventRecord(event, stream), "cudaEventRecord");
  lock.lock();
  GACCD_RETURN_IF_ERROR(failure_);
  return recorded.ok() ? recorded : FailLocked(recorded);
}

Status NcclWatch::BeginLocked(Operation operation, cudaStream_t stream, cudaStream_t begins,
                              Lock& lock) {
  GACCD_RETURN_IF_ERROR(ReadyLocked());
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  Status status = CudaStatus(cudaStreamIsCapturing(stream, &capturing), "cudaStreamIsCapturing");
  if (!status.ok()) return FailLocked(status);
  if (capturing != cudaStreamCaptureStatusNone) {
    return {ErrorKind::kInternal, StrCat(Name(operation),
                                         ": the stream is being captured; collectives are enqueued "
                                         "between graphs, so that each has its own deadline")};
  }
  // Not every rank takes part in a message, but in a group of two both do, so their numbers agree.
  const bool counts = operation != Operation::kMessage || options_.hosts.size() <= 2;
  newest_ = {newest_.sequence + (counts ? 1 : 0), operation};
  options_.board.PublishEntry(newest_);
  status = pending_.Begin(newest_);
  return status.ok() ? RecordUnlocked(pending_.start(), begins, lock) : FailLocked(status);
}

Status NcclWatch::EndLocked(ncclResult_t result, cudaStream_t stream, Lock& lock) {
  // The kernels are on the stream only after NCCL has completed the calls; the end event must
  // follow them.
  const Status status = FinishLocked(Numbered(newest_), result, EnqueueLimit(), lock);
  GACCD_RETURN_IF_ERROR(status);
  GACCD_RETURN_IF_ERROR(RecordUnlocked(pending_.end(), stream, lock));
  const bool was_empty = pending_.empty();
  pending_.End();
  if (was_empty) wake_.notify_all();
  return Status::Ok();
}

Status NcclWatch::FinishLocked(std::string_view what, ncclResult_t result,
                               std::chrono::nanoseconds limit, Lock& lock) {
  const NcclApi& api = *options_.api;
  Status status = NcclStatus(api, options_.comm, result, what);
  Deadline clock(options_.bound);
  Pause pause;
  while (status.ok()) {
    ncclResult_t state = ncclInProgress;
    status = NcclStatus(api, options_.comm, api.CommGetAsyncError(options_.comm, &state), what);
    if (!status.ok()) break;
    if (state == ncclSuccess) return Status::Ok();
    if (state != ncclInProgress) {
      status = Broken(state, what);
    } else if (const std::string lost = NameLostPeers(); !lost.empty()) {
      status = {ErrorKind::kUnavailable, StrCat(what, ": ", lost)};
    } else if (clock.Elapsed() >= limit) {
      status = {ErrorKind::kUnavailable, StrCat(what, ": NCCL was not done within ",
                                                std::chrono::duration<double>(limit).count(),
                                                " s; at least one rank did not arrive")};
    }
    if (!status.ok()) break;
    lock.unlock();
    pause.Wait();
    lock.lock();
    if (!failure_.ok()) return failure_;
  }
  return FailLocked(status);
}

Status NcclWatch::WaitIdle() {
  Lock lock(mutex_);
  while (failure_.ok() && !pending_.empty()) idle_.wait_for(lock, kIdlePollPeriod);
  return failure_;
}

void NcclWatch::Run() {
  // Another thread may be capturing a graph, which forbids event queries on all threads that have
  // not set thread-local capture mode.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  Status ready = CudaStatus(cudaSetDevice(options_.device), "cudaSetDevice");
  if (ready.ok()) {
    ready = CudaStatus(cudaThreadExchangeStreamCaptureMode(&mode), "capture mode of the watch");
  }
  Lock lock(mutex_);
  if (!ready.ok()) (void)FailLocked(ready);
  while (!stop_ && failure_.ok()) {
    options_.board.PublishAlive();
    const Status status = PollLocked();
    if (!status.ok()) (void)FailLocked(status);
    if (pending_.empty()) idle_.notify_all();
    if (!stop_ && failure_.ok()) {
      wake_.wait_for(lock, pending_.empty() ? kIdlePollPeriod : kPollPeriod);
    }
  }
}

Status NcclWatch::PollLocked() {
  GACCD_RETURN_IF_ERROR(pending_.PollHealth());
  GACCD_RETURN_IF_ERROR(PollNccl());
  GACCD_RETURN_IF_ERROR(FindLostPeers());
  const auto late = pending_.FindLate();
  if (!late.has_value()) return Status::Ok();
  return NotDone(late->entry, late->waited);
}

// Names the ranks of this node that prevent the collective from completing.
Status NcclWatch::NotDone(Entry entry, Clock::duration waited) {
  std::vector<MissingRank> missing = EndedPeers();
  for (const MissingRank& rank :
       options_.board.FindMissing(entry, waited, StalledAfter(options_.bound))) {
    missing.push_back(rank);
  }
  lost_.missing = Offenders(missing);
  const auto others = static_cast<int>(options_.hosts.size()) - 1 - options_.board.known();
  if (!missing.empty() || others == 0) {
    return MissingError(entry, waited, options_.bound, lost_.missing, options_.hosts);
  }
  return {ErrorKind::kUnavailable,
          StrCat(Numbered(entry), " was not done after ",
                 std::chrono::duration_cast<milliseconds>(waited).count(), " ms (bound ",
                 options_.bound.count(), " ms): ", options_.board.known(),
                 " other ranks of this node entered it; ", others,
                 " ranks on other nodes are unknown here: see their messages")};
}

std::vector<MissingRank> NcclWatch::EndedPeers() const {
  std::vector<MissingRank> ended;
  for (const int rank : options_.peers.Ended()) ended.push_back({rank, Absence::kEnded});
  return ended;
}

Status NcclWatch::FindLostPeers() {
  const Clock::time_point now = Clock::now();
  if (!EndedPeers().empty() && !death_seen_.has_value()) death_seen_ = now;
  if (pending_.empty()) return Status::Ok();
  const Clock::duration waited = now - pending_.enqueued();
  const bool dead =
      death_seen_.has_value() && now - *death_seen_ >= kDeathGrace && waited >= kDeathGrace;
  if (!dead && options_.board.GaveUp().empty()) return Status::Ok();
  return NotDone(pending_.oldest(), waited);
}

Status NcclWatch::PollNccl() {
  ncclResult_t state = ncclInProgress;
  const NcclApi& api = *options_.api;
  GACCD_RETURN_IF_ERROR(NcclStatus(api, options_.comm, api.CommGetAsyncError(options_.comm, &state),
                                   "ncclCommGetAsyncError"));
  if (state == ncclSuccess || state == ncclInProgress) return Status::Ok();
  return Broken(state, pending_.empty() ? StrCat("after ", Numbered(newest_))
                                        : StrCat("in ", Numbered(pending_.oldest())));
}

Status NcclWatch::Broken(ncclResult_t error, std::string_view where) {
  const Clock::time_point now = Clock::now();
  if (!error_seen_.has_value()) error_seen_ = now;
  const std::string lost = NameLostPeers();
  if (lost.empty() && now - *error_seen_ < ProcessExitLimit(options_.bound)) return Status::Ok();
  const Status status = NcclStatus(*options_.api, options_.comm, error,
                                   StrCat(where, ": asynchronous error of NCCL"));
  return {ErrorKind::kUnavailable, StrCat(status.message(), lost.empty() ? "" : "; ", lost)};
}

std::string NcclWatch::NameLostPeers() const {
  std::string text;
  const auto add = [&](int rank, std::string_view how) {
    text += StrCat(text.empty() ? "" : "; ", RankOnHost(rank, options_.hosts), how);
  };
  for (const int rank : options_.peers.Ended()) add(rank, kHasEnded);
  if (!text.empty()) return text;
  for (const int rank : options_.board.GaveUp()) add(rank, " gave up");
  return text;
}

void NcclWatch::End() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  end_.Wait(options_.bound / 10);
  const ncclComm_t comm = std::exchange(options_.comm, nullptr);
  if (comm == nullptr) return;  // has failed and was aborted
  const NcclApi& api = *options_.api;
  Status status = NcclStatus(api, comm, api.CommFinalize(comm), "ncclCommFinalize");
  if (status.ok()) {
    status = WaitForNccl(api, comm, SetUpLimit(), options_.peers, "ncclCommFinalize");
  }
  end_ = status.ok() ? NcclEnd::Destroy(api, comm) : NcclEnd::Abort(api, comm);
  end_.Wait(options_.bound / 10);
}

}  // namespace gaccd
