#include "collectives/liveness/heartbeat/heartbeat.h"

#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/liveness/heartbeat/loops.h"

namespace gaccd {
namespace {

using heartbeat::HubAddress;
using heartbeat::LostRank;
using heartbeat::Progress;

// large, so that foreign connections do not fill it before the members connect
constexpr int kBacklog = 512;

// Address of the hub, sent by rank 0. Plain bytes for a broadcast.
struct HubNotice {
  static constexpr std::size_t kAddresses = 16;
  std::array<std::array<char, INET6_ADDRSTRLEN>, kAddresses> addresses{};  // with a zero at the end
  heartbeat::Key secret{};
  std::uint16_t port = 0;  // 0: rank 0 could not listen
};

Result<heartbeat::Listener> Open(int world, HubNotice* notice) {
  GACCD_RETURN_IF_ERROR(heartbeat::FillRandomBytes(notice->secret));
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, heartbeat::OwnAddresses());
  for (std::size_t i = 0; i < std::min(addresses.size(), HubNotice::kAddresses); ++i) {
    std::strncpy(notice->addresses[i].data(), addresses[i].c_str(), INET6_ADDRSTRLEN - 1);
  }
  GACCD_ASSIGN_OR_RETURN(heartbeat::Listener listener,
                         heartbeat::Listen(std::max(world, kBacklog)));
  notice->port = listener.port;
  return listener;
}

HubAddress MakeHubAddress(const HubNotice& notice, bool same_machine) {
  HubAddress hub{.addresses = {}, .port = notice.port, .secret = notice.secret};
  for (const auto& address : notice.addresses) {
    if (address[0] != 0) hub.addresses.emplace_back(address.data());
  }
  const auto own = heartbeat::OwnAddresses();
  if (own.ok() && !same_machine) {
    hub.addresses = heartbeat::WithoutLocalAddresses(std::move(hub.addresses), *own);
  }
  return hub;
}

// The second number in /proc/self/task/N/schedstat: nanoseconds ready to run without a core.
std::uint32_t StarvedMillis(int thread) {
  std::FILE* const file = std::fopen(Format("/proc/self/task/%d/schedstat", thread).c_str(), "re");
  if (file == nullptr) return 0;
  unsigned long long ran = 0;
  unsigned long long waited = 0;
  const int read = std::fscanf(file, "%llu %llu", &ran, &waited);
  std::fclose(file);
  return read == 2 ? static_cast<std::uint32_t>(waited / 1'000'000) : 0;
}

constexpr std::string_view kThread = "the thread of the heartbeat";
// Both sides report what is missing when the bound has passed; only ranks that cannot report count
// as silent.
constexpr std::chrono::seconds kTimeToSay{1};

// The hub knows which ranks did not connect, a member which address it tried: both are reported.
Status AgreeTwice(Communicator& comm, const Status& mine) {
  const bool hub = comm.rank() == 0;
  const Status absent = AgreeOn(comm, hub ? mine : Status::Ok()).status;
  const Status outside = AgreeOn(comm, hub ? Status::Ok() : mine).status;
  if (absent.ok() || outside.ok()) return absent.ok() ? outside : absent;
  return {absent.kind(), StrCat(absent.message(), "; ", outside.message())};
}

}  // namespace

Progress HeartbeatShared::Read() {
  const std::uint64_t place = place_.load(std::memory_order_relaxed);
  return {.phase = static_cast<heartbeat::Phase>(place >> 32),
          .micro_step = static_cast<std::uint32_t>(place),
          .update = update_.load(std::memory_order_relaxed),
          .median_update_ms = median_update_ms_.load(std::memory_order_relaxed),
          .starved_ms = StarvedMillis(main_thread),
          .memory_kib = static_cast<std::uint32_t>(memory_.Bytes() / 1024)};
}

namespace {

// The part of a gap between two passes in which the thread did not sleep: on average it sleeps for
// half a tick.
std::int64_t StoppedIn(std::int64_t gap_ns) {
  constexpr std::chrono::nanoseconds kLate = heartbeat::kTick + std::chrono::milliseconds(20);
  constexpr std::chrono::nanoseconds kSlept = heartbeat::kTick / 2;
  return gap_ns > kLate.count() ? gap_ns - kSlept.count() : 0;
}

}  // namespace

void HeartbeatShared::RecordRunning(std::chrono::steady_clock::time_point now) {
  const std::int64_t ns = now.time_since_epoch() / std::chrono::nanoseconds(1);
  const std::int64_t last = last_ran_ns_.exchange(ns);
  if (last != 0) stopped_ns_ += StoppedIn(ns - last);
}

std::chrono::nanoseconds HeartbeatShared::StoppedTime(
    std::chrono::steady_clock::time_point now) const {
  const std::int64_t last = last_ran_ns_;
  const std::int64_t gap = now.time_since_epoch() / std::chrono::nanoseconds(1) - last;
  return std::chrono::nanoseconds(stopped_ns_ + (last != 0 ? StoppedIn(gap) : 0));
}

void HeartbeatShared::Joined(Status status) {
  const std::lock_guard lock(mutex_);
  if (!joined_) joined_ = std::move(status);
  changed_.notify_all();
}

Status HeartbeatShared::WaitUntilJoined(std::chrono::milliseconds bound) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, bound, [this] { return joined_.has_value(); })) return *joined_;
  return {ErrorKind::kUnavailable,
          StrCat("heartbeat: no contact with rank 0 within ", bound.count(), " ms")};
}

bool HeartbeatShared::AddLost(const LostRank& lost) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (lost_.empty()) {
    const bool silent = lost.absence == Absence::kSilent;
    last_moment_ = now + (silent ? heartbeat::kConcurrentSilence : heartbeat::kConcurrentLoss);
  }
  if (now > last_moment_) return false;
  if (std::ranges::count(lost_, lost.rank, &LostRank::rank) > 0) return false;
  lost_.push_back(lost);
  return true;
}

std::vector<LostRank> HeartbeatShared::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

bool HeartbeatShared::all_lost_known() const {
  const std::lock_guard lock(mutex_);
  return !lost_.empty() && std::chrono::steady_clock::now() > last_moment_ + heartbeat::kTick;
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::Start(Communicator& comm,
                                                    const HeartbeatOptions& options,
                                                    OnLost on_lost) {
  std::unique_ptr<Heartbeat> heart(new Heartbeat);
  if (comm.size() == 1) return heart;
  HeartbeatShared& shared = heart->shared_;
  shared.main_thread = static_cast<int>(syscall(SYS_gettid));
  HubNotice notice;
  Result<heartbeat::Listener> listener = heartbeat::Listener{};
  if (comm.rank() == 0) listener = Open(comm.size(), &notice);
  const MutableBuffer bytes{&notice, sizeof notice, DType::kU8};
  GACCD_RETURN_IF_ERROR(comm.Broadcast(bytes, 0));

  Status mine = listener.status();
  if (notice.port != 0) {
    const heartbeat::LoopParts parts{shared, options, std::move(on_lost), comm.rank(), comm.size()};
    Result<std::thread> thread = std::thread();
    if (comm.rank() == 0) {
      thread = StartThread(
          kThread, [parts, listener = std::move(*listener), secret = notice.secret]() mutable {
            heartbeat::RunHub(parts, std::move(listener), secret);
          });
    } else {
      const std::vector<int>& node_of = comm.topology().node_of;
      const bool same = node_of[static_cast<std::size_t>(comm.rank())] == node_of[0];
      thread = StartThread(kThread, [parts, hub = MakeHubAddress(notice, same)] {
        heartbeat::RunMember(parts, hub);
      });
    }
    mine = thread.status();
    if (thread.ok()) heart->thread_ = *std::move(thread);
    if (mine.ok()) mine = shared.WaitUntilJoined(options.join_bound + kTimeToSay);
  }
  GACCD_RETURN_IF_ERROR(heartbeat::ExplainAbsence(
      AgreeTwice(comm, mine), MakeHubAddress(notice, true).addresses, comm.topology().nodes));
  return heart;
}

Heartbeat::~Heartbeat() {
  shared_.stop = true;
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Goodbye() {
  shared_.leaving = true;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (thread_.joinable() && !shared_.said_goodbye && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string Describe(const LostRank& lost, const Topology& topology) {
  const double seconds = static_cast<double>(lost.silence.count()) / 1000;
  std::string what;
  if (lost.absence == Absence::kEnded) {
    what = "has ended (its connection was closed)";
  } else if (lost.absence == Absence::kStalled) {
    what = StrCat("is stuck: the others wait for it, it made no progress for ", seconds, " s");
  } else {
    what = StrCat("has been silent for ", seconds, " s: stopped or disconnected");
  }
  using heartbeat::Phase;
  const heartbeat::Progress& last = lost.last;
  const bool between =
      last.phase == Phase::kEvaluate || last.phase == Phase::kSave || last.phase == Phase::kLoad;
  std::string where =
      between ? StrCat(" after update ", last.update) : StrCat(" of update ", last.update + 1);
  // in a reduction all micro-steps are done
  if (!between && last.phase != Phase::kReduce) {
    where += StrCat(", micro-step ", last.micro_step + 1);
  }
  return StrCat(RankOnHost(lost.rank, topology.hosts), " ", what, "; last seen in ",
                heartbeat::Name(last.phase), where);
}

}  // namespace gaccd
