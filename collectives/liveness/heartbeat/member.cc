#include <poll.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/liveness/heartbeat/connection.h"
#include "collectives/liveness/heartbeat/loops.h"

namespace gaccd::heartbeat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kOneTry{2};  // for one address to answer

class Member {
 public:
  Member(const LoopParts& parts, const HubAddress& hub)
      : parts_(parts),
        hub_(hub),
        detector_({0}, {.silent_after = parts.options.silent_after, .tick = kTick}, Clock::now()) {}

  void Run() {
    if (!Join()) return;
    while (!parts_.shared.stop) {
      Wait(*connection_);
      parts_.shared.RecordRunning(Clock::now());
      connection_->Flush();
      while (const auto frame = connection_->Receive()) OnFrame(*frame);
      if (connection_->closed()) detector_.OnDisconnect(0);
      Beat();
      SendGoodbye();
      if (const auto lost = detector_.Tick(Clock::now())) {
        detector_.OnGoodbye(lost->rank);
        Add(*lost);
      }
    }
  }

 private:
  // Tries the hub's addresses in order until one answers with a signed welcome.
  bool Join() {
    const Clock::time_point limit = Clock::now() + parts_.options.join_bound;
    while (!parts_.shared.stop && Clock::now() < limit) {
      for (const std::string& address : hub_.addresses) {
        if (parts_.shared.stop || JoinHub(address, limit)) return !parts_.shared.stop;
      }
    }
    std::string tried;
    for (const std::string& address : hub_.addresses) tried += StrCat(" ", address);
    parts_.shared.Joined(
        {ErrorKind::kUnavailable, StrCat("heartbeat: no answer from rank 0 on port ", hub_.port,
                                         " at any of its addresses:", tried)});
    return false;
  }

  bool JoinHub(const std::string& address, Clock::time_point join_limit) {
    const Clock::time_point limit = std::min(Clock::now() + kOneTry, join_limit);
    auto socket = StartConnect(address, hub_.port);
    if (!socket.ok()) {
      std::this_thread::sleep_for(kTick);
      return false;
    }
    pollfd ready{socket->get(), POLLOUT, 0};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
    if (poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(wait, 0))) != 1 ||
        !Connected(*socket))
      return false;

    Frame hello{.type = FrameType::kHello, .rank = parts_.rank};
    if (!FillRandomBytes(hello.nonce).ok()) return false;
    const auto greeting = WelcomeKey(hub_.secret, parts_.rank, hello.nonce);
    if (!greeting.ok()) return false;
    Connection connection(std::move(*socket), Direction::kToHub, hub_.secret);
    connection.Send(hello);
    connection.SetKey(*greeting);
    while (Clock::now() < limit && !connection.closed() && !parts_.shared.stop) {
      Wait(connection);
      connection.Flush();
      const auto frame = connection.Receive();
      if (!frame || frame->type != FrameType::kWelcome) continue;
      const auto key = ConnectionKey(hub_.secret, parts_.rank, hello.nonce, frame->nonce);
      if (!key.ok()) return false;
      connection.SetKey(*key);
      connection_.emplace(std::move(connection));
      detector_.OnBeat(0, {}, Clock::now());
      Beat();
      parts_.shared.Joined(Status::Ok());
      return true;
    }
    return false;
  }

  static void Wait(const Connection& connection) {
    const int write = connection.wants_to_write() ? POLLOUT : 0;
    pollfd ready{connection.socket().get(), static_cast<short>(POLLIN | write), 0};
    if (connection.closed()) ready.fd = -1;
    (void)poll(&ready, 1, static_cast<int>(kTick.count()));
  }

  void OnFrame(const Frame& frame) {
    if (frame.type == FrameType::kBeat) detector_.OnBeat(0, frame.progress, Clock::now());
    if (frame.type == FrameType::kGoodbye) detector_.OnGoodbye(0);
    if (frame.type != FrameType::kLost) return;
    Add({frame.rank, frame.absence, std::chrono::milliseconds(frame.silent_ms), frame.progress});
  }

  void Beat() {
    const Clock::time_point now = Clock::now();
    if (now < next_beat_) return;
    next_beat_ = now + parts_.options.interval;
    connection_->Send(
        {.type = FrameType::kBeat, .rank = parts_.rank, .progress = parts_.shared.Read()});
  }

  void SendGoodbye() {
    if (!parts_.shared.leaving || parts_.shared.said_goodbye) return;
    connection_->Send({.type = FrameType::kGoodbye, .rank = parts_.rank});
    parts_.shared.said_goodbye = true;
  }

  void Add(const LostRank& lost) {
    if (parts_.shared.AddLost(lost) && parts_.shared.lost().size() == 1) parts_.on_lost(lost);
  }

  const LoopParts& parts_;
  const HubAddress& hub_;
  Detector detector_;  // of the hub
  std::optional<Connection> connection_;
  Clock::time_point next_beat_ = Clock::now();
};

}  // namespace

Status ExplainAbsence(Status status, const std::vector<std::string>& offered, int nodes) {
  const auto is_loopback = [](const std::string& address) {
    return address.starts_with("127.") || address == "::1";
  };
  if (status.ok() || status.kind() != ErrorKind::kUnavailable || nodes == 1 ||
      !std::ranges::all_of(offered, is_loopback)) {
    return status;
  }
  return {ErrorKind::kConfig,
          StrCat("heartbeats between ", nodes,
                 " nodes need an address of rank 0's node besides loopback and fe80::, found none; "
                 "give it one, or train without them (--heartbeat-seconds=0); ",
                 status.message())};
}

std::vector<std::string> WithoutLocalAddresses(std::vector<std::string> offered,
                                               const std::vector<std::string>& own) {
  std::vector<std::string> others;
  std::ranges::remove_copy_if(offered, std::back_inserter(others), [&](const std::string& address) {
    return std::ranges::find(own, address) != own.end();
  });
  return others.empty() ? std::move(offered) : others;
}

void RunMember(const LoopParts& parts, const HubAddress& hub) { Member(parts, hub).Run(); }

}  // namespace gaccd::heartbeat
