#include "collectives/comm/mpi_watch.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

// A waiting rank checks for deadline, deaths and reports this often, and publishes that it is
// alive.
constexpr milliseconds kPollPeriod{5};
// A process without a sign of life for this long, or for a quarter of the bound, is stalled.
constexpr milliseconds kStalledAfter{1'000};
// Polls of a counter before the core is yielded: about 200 us with a dedicated core. Those of MPI
// end after kPollPeriod, too: each may yield the core (mpi_yield_when_idle), on a busy machine for
// milliseconds.
constexpr int kSpinsOwnCore = 10'000;
constexpr int kSpinsOversubscribed = 50;
// Yields before the rank sleeps: cheaper than a sleep if all arrive soon; wait.h explains why
// not more.
constexpr int kYields = 16;
// Maximum delay between two ranks being notified of a lost rank.
constexpr milliseconds kInterruptSpread{250};
// Time for a report to be sent.
constexpr milliseconds kSendTime{50};

bool Explains(const MissingRank& missing) { return missing.absence != Absence::kGaveUp; }

void RelaxCore() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

MpiWatch::MpiWatch(const Topology* topology, int rank, std::shared_ptr<NodeGroup> node,
                   std::unique_ptr<MpiReports> reports, const CommOptions& options,
                   const MpiGroup& group)
    : topology_(topology),
      rank_(rank),
      node_(std::move(node)),
      reports_(std::move(reports)),
      options_(options),
      spins_(group.oversubscribed ? kSpinsOversubscribed : kSpinsOwnCore),
      sleeps_(group.sleeps),
      deadline_(options.bound) {}

Status MpiWatch::Enter(Operation operation, std::uint64_t shape, std::int64_t place) {
  GACCD_RETURN_IF_ERROR(failure_);
  mine_ = {mine_.sequence + 1, operation};
  BoardLine& line = node_->own_line();
  CallNotice& call = line.calls[mine_.sequence & 1];
  call.shape.store(shape, std::memory_order_relaxed);
  call.place.store(place, std::memory_order_relaxed);
  call.entry.store(Pack(mine_), std::memory_order_release);
  line.alive_ms.store(BoardMillis(), std::memory_order_relaxed);
  line.entry.store(Pack(mine_), std::memory_order_release);
  return Status::Ok();
}

void MpiWatch::Exit() {
  node_->own_line().entry.store(Pack({mine_.sequence, Operation::kNone}),
                                std::memory_order_release);
}

const CallNotice& MpiWatch::notice(int line) const {
  return node_->board()[static_cast<std::size_t>(line)].calls[mine_.sequence & 1];
}

Status MpiWatch::WaitFor(NodeGate& gate, std::uint64_t target) {
  for (std::int64_t spins = 0; !gate.Reached(target); ++spins) {
    if (spins < spins_) {
      RelaxCore();
      continue;
    }
    if (spins < spins_ + kYields) {
      sched_yield();
      continue;
    }
    if (spins == spins_ + kYields) StartLongWait();
    const Status status = Wait(gate, target);
    if (!status.ok()) return Fail(status);
  }
  return Status::Ok();
}

// The deadline is per wait: a long operation on much data has many waits, and each that ends shows
// that all ranks are alive.
void MpiWatch::StartLongWait() {
  last_poll_ = Clock::now();
  deadline_ = Deadline(options_.bound, last_poll_);
  pause_ = Pause();
}

void MpiWatch::PausePolling() {
  if (sleeps_) {
    pause_.Wait();
  } else {
    sched_yield();
  }
}

// One turn of a long wait. Requests between nodes progress only during MPI calls.
Status MpiWatch::Wait(NodeGate& gate, std::uint64_t target) {
  if (progress_request_ != nullptr) {
    int done = 0;
    GACCD_RETURN_IF_ERROR(
        MpiStatus(MPI_Test(progress_request_, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    PausePolling();
  } else {
    gate.Sleep(target, Clock::now() + kPollPeriod);
  }
  return PollHealth();
}

Status MpiWatch::NodeBarrier() {
  GACCD_RETURN_IF_ERROR(failure_);
  arrivals_ += static_cast<std::uint64_t>(node_->size());
  NodeGate& gate = node_->counters().arrived;
  gate.Add(1, arrivals_);
  return WaitFor(gate, arrivals_);
}

Status MpiWatch::BarrierAndCheck() {
  GACCD_RETURN_IF_ERROR(NodeBarrier());
  const Status mismatch = FindMismatch();
  return mismatch.ok() ? mismatch : Fail(mismatch);
}

Status MpiWatch::FindMismatch() const {
  const CallNotice& own = notice(node_->rank());
  for (int i = 0; i < node_->size(); ++i) {
    const CallNotice& other = notice(i);
    const Entry entry = Unpack(other.entry.load(std::memory_order_acquire));
    // Acquire: the second read of the entry is ordered after the read of the shape.
    const bool same_shape =
        other.shape.load(std::memory_order_acquire) == own.shape.load(std::memory_order_relaxed);
    const Entry again = Unpack(other.entry.load(std::memory_order_relaxed));
    // A different number: that rank has finished this operation, so it had agreed.
    if (entry.sequence != mine_.sequence || again != entry) continue;
    if (entry.operation != mine_.operation || !same_shape) {
      return MismatchError(mine_, rank_, entry, node_->ranks()[static_cast<std::size_t>(i)],
                           topology_->hosts);
    }
  }
  return Status::Ok();
}

bool MpiWatch::SamePlace() const {
  const std::int64_t place = notice(node_->rank()).place.load(std::memory_order_relaxed);
  if (place == kPrivate) return false;
  for (int i = 0; i < node_->size(); ++i) {
    if (notice(i).place.load(std::memory_order_relaxed) != place) return false;
  }
  return true;
}

Status MpiWatch::Finish(MPI_Request* request) {
  GACCD_RETURN_IF_ERROR(failure_);
  const Clock::time_point begin = Clock::now();
  for (std::int64_t spins = 0;; ++spins) {
    int done = 0;
    Status status = MpiStatus(MPI_Test(request, &done, MPI_STATUS_IGNORE), Name(mine_.operation));
    if (status.ok() && done != 0) return status;
    if (spins < spins_ && Clock::now() - begin > kPollPeriod) spins = spins_;
    if (spins == spins_) StartLongWait();
    if (status.ok() && spins >= spins_) {
      PausePolling();
      status = PollHealth();
    }
    if (!status.ok()) return Fail(std::move(status));
  }
}

Status MpiWatch::WaitForMessage(int from, const std::function<Result<bool>()>& arrived) {
  GACCD_RETURN_IF_ERROR(failure_);
  const Clock::time_point begin = Clock::now();
  for (std::int64_t spins = 0;; ++spins) {
    Result<bool> done = arrived();
    Status status = done.status();
    if (status.ok() && *done) return status;
    if (spins < spins_ && Clock::now() - begin > kPollPeriod) spins = spins_;
    if (spins == spins_) StartLongWait();
    if (status.ok() && spins >= spins_) {
      PausePolling();
      status = PollForMessage(from);
    }
    if (!status.ok()) return Fail(std::move(status));
  }
}

Status MpiWatch::PollForMessage(int from) {
  const Clock::time_point now = Clock::now();
  if (now - last_poll_ < kPollPeriod) return Status::Ok();
  last_poll_ = now;
  node_->own_line().alive_ms.store(BoardMillis(), std::memory_order_relaxed);
  GACCD_RETURN_IF_ERROR(Interrupted());
  for (const int line : node_->EndedLines()) {
    const int rank = node_->ranks()[static_cast<std::size_t>(line)];
    missing_ = {{rank, Absence::kEnded}};
    GACCD_RETURN_IF_ERROR(WaitForInterrupt());
    return {ErrorKind::kUnavailable,
            StrCat(RankOnHost(rank, topology_->hosts), kHasEnded, "; this rank waited for ",
                   from == rank_ ? std::string("its own message to be sent")
                                 : StrCat("a message of ", RankOnHost(from, topology_->hosts)))};
  }
  if (PeerGaveUp(GivenUp::kOther) || PeerGaveUp(GivenUp::kLate)) {
    GACCD_RETURN_IF_ERROR(WaitForInterrupt());
    return {ErrorKind::kUnavailable, "another rank of this group has given up"};
  }
  if (!deadline_.PeersAreLate(now)) return Status::Ok();
  missing_ = {{from, Absence::kBehind}};
  return LateMessageError(from, options_.bound, topology_->hosts);
}

Status MpiWatch::Fail(Status error) {
  if (!failure_.ok()) return failure_;
  failure_ = std::move(error);
  std::atomic<std::uint64_t>& given_up = node_->own_line().given_up;
  if (given_up.load() == static_cast<std::uint64_t>(GivenUp::kNo)) {
    given_up.store(static_cast<std::uint64_t>(GivenUp::kOther));
  }
  return failure_;
}

std::optional<CommFailure> MpiWatch::lost() const {
  if (failure_.ok()) return std::nullopt;
  CommFailure failure{mine_, missing_};
  // Another thread may have ended the wait, and another process may have ended since.
  for (const int line : node_->EndedLines()) {
    const int rank = node_->ranks()[static_cast<std::size_t>(line)];
    if (std::ranges::count(missing_, rank, &MissingRank::rank) > 0) continue;
    failure.missing.push_back({rank, Absence::kEnded});
  }
  return failure;
}

// Cheap enough for every turn of a waiting loop: usually only reads the clock.
Status MpiWatch::PollHealth() {
  const Clock::time_point now = Clock::now();
  if (now - last_poll_ < kPollPeriod) return Status::Ok();
  last_poll_ = now;
  node_->own_line().alive_ms.store(BoardMillis(), std::memory_order_relaxed);
  GACCD_RETURN_IF_ERROR(Interrupted());
  if (deadline_.PeersAreLate(now) || PeerGaveUp(GivenUp::kLate)) return GiveUp(/*late=*/true);
  if (PeerGaveUp(GivenUp::kOther) || !node_->EndedLines().empty()) return GiveUp(/*late=*/false);
  if (reports_ != nullptr && reports_->Receive()) {
    return GiveUp(/*late=*/reports_->received().front().late);
  }
  return Status::Ok();
}

Status MpiWatch::Interrupted() const {
  return options_.interrupt == nullptr ? Status::Ok() : options_.interrupt->status();
}

// A neighbour that was interrupted has given up; the reason reaches this rank shortly after.
Status MpiWatch::WaitForInterrupt() const {
  if (options_.interrupt == nullptr) return Status::Ok();
  const Clock::time_point limit = Clock::now() + kInterruptSpread;
  while (Clock::now() < limit) {
    GACCD_RETURN_IF_ERROR(Interrupted());
    std::this_thread::sleep_for(kPollPeriod);
  }
  return Status::Ok();
}

bool MpiWatch::PeerGaveUp(GivenUp reason) const {
  return std::ranges::any_of(node_->board(), [&](const BoardLine& line) {
    return line.given_up.load(std::memory_order_relaxed) == static_cast<std::uint64_t>(reason);
  });
}

Status MpiWatch::GiveUp(bool late) {
  const GivenUp reason = late ? GivenUp::kLate : GivenUp::kOther;
  node_->own_line().given_up.store(static_cast<std::uint64_t>(reason));
  Status mismatch = FindMismatch();
  if (!mismatch.ok()) return mismatch;
  if (!late && node_->EndedLines().empty()) GACCD_RETURN_IF_ERROR(WaitForInterrupt());
  const Clock::duration waited = deadline_.Elapsed();
  missing_ = ReadNode(late);
  if (reports_ != nullptr) missing_ = QueryOtherNodes(std::move(missing_), late);
  return MissingError(mine_, waited, options_.bound, missing_, topology_->hosts);
}

std::vector<MissingRank> MpiWatch::ReadNode(bool late) const {
  const std::vector<int> ended = node_->EndedLines();
  return FindMissing(node_->board(), {mine_, node_->rank(), node_->ranks(), ended, late,
                                      std::min(kStalledAfter, options_.bound / 4)});
}

// Whether this is the first living rank of the node in this operation; at the second call, also if
// no rank has reported so far (the first may be stopped).
bool MpiWatch::ReportsForNode(bool second_call) const {
  const std::vector<int> ended = node_->EndedLines();
  for (int i = 0; i < node_->size(); ++i) {
    const BoardLine& line = node_->board()[static_cast<std::size_t>(i)];
    if (line.reported.load() != 0) return false;
    const bool here = line.entry.load() == Pack(mine_) && !std::ranges::count(ended, i);
    if (i == node_->rank()) return true;
    if (here && !second_call) return false;
  }
  return false;
}

std::vector<MissingRank> MpiWatch::QueryOtherNodes(std::vector<MissingRank> missing, bool late) {
  const Clock::time_point start = Clock::now();
  const Clock::duration grace = deadline_.TimeToFindMissingRanks();
  const int own_node = topology_->node_of[static_cast<std::size_t>(rank_)];
  bool reported = false;
  for (;;) {
    const Clock::duration passed = Clock::now() - start;
    if (!reported && ReportsForNode(/*second_call=*/passed > grace / 2)) {
      node_->own_line().reported.store(1);
      reports_->Send({own_node, late, missing});
      reported = true;
    }
    reports_->Receive();
    const bool sent = !reported || reports_->Sent() || passed > kSendTime;
    // A death explains the failure; if it was found late, several nodes may have reports. A
    // neighbour that gave up explains nothing: the report that it received arrives here, too.
    const bool known = std::ranges::any_of(missing, Explains) || !reports_->received().empty();
    const bool enough = reports_->Complete() || (!late && known);
    if ((enough && sent) || passed > grace) break;
    PausePolling();
  }
  for (const NodeReport& report : reports_->received()) {
    missing.insert(missing.end(), report.missing.begin(), report.missing.end());
  }
  if (late) {
    for (int r = 0; r < static_cast<int>(topology_->node_of.size()); ++r) {
      const int node = topology_->node_of[static_cast<std::size_t>(r)];
      const bool heard = node == own_node ||
                         std::ranges::any_of(reports_->received(),
                                             [&](const NodeReport& n) { return n.node == node; });
      if (!heard) missing.push_back({r, Absence::kSilent});
    }
  }
  return Offenders(std::move(missing));
}

}  // namespace gaccd
