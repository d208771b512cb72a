#include <poll.h>

#include <algorithm>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/liveness/heartbeat/connection.h"
#include "collectives/liveness/heartbeat/loops.h"

namespace gaccd::heartbeat {
namespace {

using Clock = std::chrono::steady_clock;

// A peer that connects and does not authenticate is dropped after kHandshakeLimit. At most
// kMaxUnauthenticated, plus one per rank, may be pending; at most kMaxAtOnce are accepted before
// members are served again.
constexpr std::chrono::seconds kHandshakeLimit{3};
constexpr std::size_t kMaxUnauthenticated = 64;
constexpr int kMaxAtOnce = 32;
constexpr int kMaxNames = 16;  // of ranks in one message

std::vector<int> AllRanks(int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  return ranks;
}

struct Peer {
  Connection connection;
  Clock::time_point since;
  int rank = -1;        // claimed in a signed hello
  bool member = false;  // confirmed by a frame signed with the key of the connection
};

class Hub {
 public:
  Hub(const LoopParts& parts, Listener listener, const Key& secret)
      : parts_(parts),
        listener_(std::move(listener)),
        secret_(secret),
        detector_(AllRanks(parts.world),
                  {.silent_after = parts.options.silent_after, .tick = kTick}, Clock::now()) {}

  void Run() {
    while (!parts_.shared.stop) {
      Wait();
      parts_.shared.RecordRunning(Clock::now());
      AcceptPeers();
      for (Peer& peer : peers_) Serve(peer);
      DropPeers();
      Beat();
      if (joined_ < parts_.world - 1 && Clock::now() > join_limit_) ReportMissingRanks();
      if (joined_ == parts_.world - 1) ReportLost();
      SendGoodbye();
    }
  }

 private:
  void Wait() {
    polls_.clear();
    polls_.push_back({listener_.socket.get(), POLLIN, 0});
    for (const Peer& peer : peers_) {
      const int write = peer.connection.wants_to_write() ? POLLOUT : 0;
      polls_.push_back({peer.connection.socket().get(), static_cast<short>(POLLIN | write), 0});
    }
    (void)poll(polls_.data(), polls_.size(), static_cast<int>(kTick.count()));
  }

  void AcceptPeers() {
    for (int i = 0; i < kMaxAtOnce && listener_.socket.valid(); ++i) {
      Socket socket = Accept(listener_.socket);
      if (!socket.valid()) return;
      peers_.push_back({Connection(std::move(socket), Direction::kFromHub, secret_), Clock::now()});
      const auto pending = static_cast<std::size_t>(std::count_if(
          peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.member; }));
      if (pending > kMaxUnauthenticated + static_cast<std::size_t>(parts_.world)) {
        DropUnauthenticated();
      }
    }
  }

  // Drops the oldest, as the newest may be a member; one with a signed hello only if all have one.
  void DropUnauthenticated() {
    const auto silent = [](const Peer& peer) { return !peer.member && peer.rank < 0; };
    const auto unauthenticated = [](const Peer& peer) { return !peer.member; };
    auto oldest = std::ranges::find_if(peers_, silent);
    if (oldest == peers_.end()) oldest = std::ranges::find_if(peers_, unauthenticated);
    peers_.erase(oldest);
  }

  void Serve(Peer& peer) {
    peer.connection.Flush();
    while (const auto frame = peer.connection.Receive()) Answer(peer, *frame);
  }

  void Answer(Peer& peer, const Frame& frame) {
    if (peer.rank < 0) {
      if (frame.type == FrameType::kHello && frame.rank > 0 && frame.rank < parts_.world) {
        Welcome(peer, frame);
      }
      return;
    }
    if (frame.rank != peer.rank) return;
    if (!peer.member && !Admit(peer)) return;
    if (frame.type == FrameType::kGoodbye) detector_.OnGoodbye(peer.rank);
    if (frame.type == FrameType::kBeat) detector_.OnBeat(peer.rank, frame.progress, Clock::now());
  }

  void Welcome(Peer& peer, const Frame& hello) {
    Frame welcome{.type = FrameType::kWelcome};
    if (!FillRandomBytes(welcome.nonce).ok()) return;  // the peer times out and reports it
    const auto greeting = WelcomeKey(secret_, hello.rank, hello.nonce);
    const auto key = ConnectionKey(secret_, hello.rank, hello.nonce, welcome.nonce);
    if (!greeting.ok() || !key.ok()) return;
    peer.rank = hello.rank;
    peer.connection.SetKey(*greeting);
    peer.connection.Send(welcome);
    peer.connection.SetKey(*key);
  }

  [[nodiscard]] bool HasMember(int rank) const {
    return std::any_of(peers_.begin(), peers_.end(),
                       [rank](const Peer& peer) { return peer.member && peer.rank == rank; });
  }

  // One connection per rank: a second one may be a replay.
  bool Admit(Peer& peer) {
    if (HasMember(peer.rank)) return false;
    peer.member = true;
    if (++joined_ == parts_.world - 1) {
      listener_.socket = {};  // no further connections
      // Silence counts from now on.
      detector_ =
          Detector(AllRanks(parts_.world),
                   {.silent_after = parts_.options.silent_after, .tick = kTick}, Clock::now());
      std::vector<bool> here(static_cast<std::size_t>(parts_.world));
      for (const Peer& one : peers_) {
        if (one.member) here[static_cast<std::size_t>(one.rank)] = true;
      }
      for (int rank = 1; rank < parts_.world; ++rank) {
        // It ended before the last one joined.
        if (!here[static_cast<std::size_t>(rank)]) detector_.OnDisconnect(rank);
      }
      parts_.shared.Joined(Status::Ok());
    }
    return true;
  }

  void DropPeers() {
    const Clock::time_point now = Clock::now();
    peers_.remove_if([&](const Peer& peer) {
      const bool expired = !peer.member && now - peer.since > kHandshakeLimit;
      if (!peer.connection.closed() && !expired) return false;
      if (peer.member) detector_.OnDisconnect(peer.rank);
      return true;
    });
  }

  void Beat() {
    const Clock::time_point now = Clock::now();
    if (now < next_beat_) return;
    next_beat_ = now + parts_.options.interval;
    const Frame beat{.type = FrameType::kBeat, .progress = parts_.shared.Read()};
    detector_.OnBeat(0, beat.progress, now);
    ToMembers(beat);
  }

  void ToMembers(const Frame& frame) {
    for (Peer& peer : peers_) {
      if (peer.member) peer.connection.Send(frame);
    }
  }

  // Only the hub knows which ranks are missing: the others just wait for it.
  void ReportMissingRanks() {
    if (named_) return;
    named_ = true;
    std::string ranks;
    int absent = 0;
    for (int rank = 1; rank < parts_.world; ++rank) {
      if (HasMember(rank)) continue;
      if (++absent <= kMaxNames) ranks += StrCat(absent == 1 ? " " : ", ", rank);
    }
    if (absent > kMaxNames) ranks += StrCat(" and ", absent - kMaxNames, " more");
    const double bound = std::chrono::duration<double>(parts_.options.join_bound).count();
    parts_.shared.Joined(
        {ErrorKind::kUnavailable, StrCat("heartbeat: rank", absent == 1 ? "" : "s", ranks,
                                         " did not reach rank 0 within ", bound, " s")});
  }

  void ReportLost() {
    while (const auto lost = detector_.Tick(Clock::now())) {
      detector_.OnGoodbye(lost->rank);
      ReportLost(*lost);
    }
  }

  void ReportLost(const LostRank& lost) {
    // If most ranks are silent, this one is disconnected.
    if (lost.absence == Absence::kSilent && 2 * ++silent_ > parts_.world && silent_ > 1) return;
    if (!parts_.shared.AddLost(lost)) return;
    // Notify the others first: this process may end a moment later.
    ToMembers({.type = FrameType::kLost,
               .rank = lost.rank,
               .progress = lost.last,
               .absence = lost.absence,
               .silent_ms = static_cast<std::uint32_t>(lost.silence.count())});
    if (parts_.shared.lost().size() == 1) parts_.on_lost(lost);
  }

  void SendGoodbye() {
    if (!parts_.shared.leaving || parts_.shared.said_goodbye) return;
    detector_.OnGoodbye(0);
    ToMembers({.type = FrameType::kGoodbye});
    parts_.shared.said_goodbye = true;
  }

  const LoopParts& parts_;
  Listener listener_;
  const Key secret_;
  Detector detector_;
  std::list<Peer> peers_;
  std::vector<pollfd> polls_;
  Clock::time_point next_beat_ = Clock::now();
  const Clock::time_point join_limit_ = Clock::now() + parts_.options.join_bound;
  bool named_ = false;
  int joined_ = 0;
  int silent_ = 0;  // number of ranks found silent
};

}  // namespace

void RunHub(const LoopParts& parts, Listener listener, const Key& secret) {
  Hub(parts, std::move(listener), secret).Run();
}

}  // namespace gaccd::heartbeat
