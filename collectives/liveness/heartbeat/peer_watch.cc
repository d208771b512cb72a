#include "collectives/liveness/heartbeat/peer_watch.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kUpdatesOfMedian = 15;

}  // namespace

Result<std::unique_ptr<PeerWatch>> PeerWatch::Start(Communicator& comm,
                                                    std::shared_ptr<Interrupt> interrupt,
                                                    std::chrono::seconds silent_after) {
  std::unique_ptr<PeerWatch> watch(new PeerWatch);
  if (silent_after.count() == 0) return watch;
  const Topology& topology = comm.topology();
  const std::string me = StrCat("gaccd: rank ", comm.rank(), " on ",
                                topology.hosts[static_cast<std::size_t>(comm.rank())], " exits: ");
  auto on_lost = [&topology, me, interrupt = std::move(interrupt),
                  self = watch.get()](const heartbeat::LostRank& lost) {
    const Status reason(ErrorKind::kUnavailable, Describe(lost, topology));
    interrupt->Raise(reason);
    self->timer_ = std::make_unique<ExitTimer>(
        kExitTimeout, static_cast<int>(ErrorKind::kUnavailable), me + reason.message());
  };
  GACCD_ASSIGN_OR_RETURN(watch->heartbeat_,
                         Heartbeat::Start(comm, {.silent_after = silent_after}, on_lost));
  return watch;
}

double PeerWatch::StoppedSinceLastCall() {
  if (!heartbeat_) return 0;
  const std::chrono::nanoseconds stopped = heartbeat_->StoppedTime();
  const std::chrono::duration<double> since = stopped - stopped_taken_;
  stopped_taken_ = stopped;
  return since.count();
}

void PeerWatch::RecordUpdateTime(std::chrono::duration<double> time) {
  if (!heartbeat_) return;
  if (last_updates_s_.size() < kUpdatesOfMedian) {
    last_updates_s_.push_back(time.count());
  } else {
    last_updates_s_[next_update_++ % kUpdatesOfMedian] = time.count();
  }
  std::vector<double> sorted = last_updates_s_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  heartbeat_->SetMedianUpdate(
      std::chrono::milliseconds(1 + static_cast<std::int64_t>(*middle * 1000)));
}

}  // namespace gaccd
