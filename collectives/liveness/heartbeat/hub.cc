#include <poll.h>

#include <algorithm>
#include <list>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/liveness/heartbeat/connection.h"
#include "collectives/liveness/heartbeat/loops.h"

namespace gaccd::heartbeat {
namespace {

using Clock = std::chrono::steady_clock;

// A stranger that connects and says nothing is dropped after this; so many, and one for each rank,
// may wait at once; so many are let in before the members are served again.
constexpr std::chrono::seconds kStrangerLimit{3};
constexpr std::size_t kMostStrangers = 64;
constexpr int kMostAtOnce = 32;
constexpr int kMostNames = 16;  // of ranks in one message

std::vector<int> AllRanks(int world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
  return ranks;
}

struct Guest {
  Connection connection;
  Clock::time_point since;
  int rank = -1;        // claimed in a signed hello
  bool member = false;  // and proved by a frame signed with the connection's own key
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
      parts_.shared.Ran(Clock::now());
      AcceptGuests();
      for (Guest& guest : guests_) Serve(guest);
      DropGuests();
      Beat();
      if (joined_ < parts_.world - 1 && Clock::now() > join_limit_) NameTheAbsent();
      if (joined_ == parts_.world - 1) Look();
      SayGoodbye();
    }
  }

 private:
  void Wait() {
    polls_.clear();
    polls_.push_back({listener_.socket.get(), POLLIN, 0});
    for (const Guest& guest : guests_) {
      const int write = guest.connection.wants_to_write() ? POLLOUT : 0;
      polls_.push_back({guest.connection.socket().get(), static_cast<short>(POLLIN | write), 0});
    }
    (void)poll(polls_.data(), polls_.size(), static_cast<int>(kTick.count()));
  }

  void AcceptGuests() {
    for (int i = 0; i < kMostAtOnce && listener_.socket.valid(); ++i) {
      Socket socket = Accept(listener_.socket);
      if (!socket.valid()) return;
      guests_.push_back(
          {Connection(std::move(socket), Direction::kFromHub, secret_), Clock::now()});
      const auto strangers = static_cast<std::size_t>(std::count_if(
          guests_.begin(), guests_.end(), [](const Guest& guest) { return !guest.member; }));
      if (strangers > kMostStrangers + static_cast<std::size_t>(parts_.world)) DropAStranger();
    }
  }

  // The oldest one, for a member may be the newest; one that has signed a hello only when all have.
  void DropAStranger() {
    const auto silent = [](const Guest& guest) { return !guest.member && guest.rank < 0; };
    const auto stranger = [](const Guest& guest) { return !guest.member; };
    auto oldest = std::ranges::find_if(guests_, silent);
    if (oldest == guests_.end()) oldest = std::ranges::find_if(guests_, stranger);
    guests_.erase(oldest);
  }

  void Serve(Guest& guest) {
    guest.connection.Flush();
    while (const auto frame = guest.connection.Receive()) Answer(guest, *frame);
  }

  void Answer(Guest& guest, const Frame& frame) {
    if (guest.rank < 0) {
      if (frame.type == FrameType::kHello && frame.rank > 0 && frame.rank < parts_.world) {
        Welcome(guest, frame);
      }
      return;
    }
    if (frame.rank != guest.rank) return;
    if (!guest.member && !Admit(guest)) return;
    if (frame.type == FrameType::kGoodbye) detector_.Left(guest.rank);
    if (frame.type == FrameType::kBeat) detector_.Heard(guest.rank, frame.progress, Clock::now());
  }

  void Welcome(Guest& guest, const Frame& hello) {
    Frame welcome{.type = FrameType::kWelcome};
    if (!FillRandom(welcome.nonce).ok()) return;  // the guest times out and says so
    const auto greeting = WelcomeKey(secret_, hello.rank, hello.nonce);
    const auto key = ConnectionKey(secret_, hello.rank, hello.nonce, welcome.nonce);
    if (!greeting.ok() || !key.ok()) return;
    guest.rank = hello.rank;
    guest.connection.SetKey(*greeting);
    guest.connection.Send(welcome);
    guest.connection.SetKey(*key);
  }

  // One connection a rank: a second one may be a replay.
  bool Admit(Guest& guest) {
    for (const Guest& other : guests_) {
      if (other.member && other.rank == guest.rank) return false;
    }
    guest.member = true;
    if (++joined_ == parts_.world - 1) {
      listener_.socket = {};  // nobody connects a second time
      // Silence counts from now on.
      detector_ =
          Detector(AllRanks(parts_.world),
                   {.silent_after = parts_.options.silent_after, .tick = kTick}, Clock::now());
      parts_.shared.Joined(Status::Ok());
    }
    return true;
  }

  void DropGuests() {
    const Clock::time_point now = Clock::now();
    guests_.remove_if([&](const Guest& guest) {
      const bool bored = !guest.member && now - guest.since > kStrangerLimit;
      if (!guest.connection.closed() && !bored) return false;
      if (guest.member) detector_.Ended(guest.rank);
      return true;
    });
  }

  void Beat() {
    const Clock::time_point now = Clock::now();
    if (now < next_beat_) return;
    next_beat_ = now + parts_.options.interval;
    const Frame beat{.type = FrameType::kBeat, .progress = parts_.shared.Read()};
    detector_.Heard(0, beat.progress, now);
    ToMembers(beat);
  }

  void ToMembers(const Frame& frame) {
    for (Guest& guest : guests_) {
      if (guest.member) guest.connection.Send(frame);
    }
  }

  // Only the hub knows who is not here: the others just wait for it.
  void NameTheAbsent() {
    if (named_) return;
    named_ = true;
    std::string ranks;
    int absent = 0;
    for (int rank = 1; rank < parts_.world; ++rank) {
      const bool here = std::any_of(guests_.begin(), guests_.end(), [rank](const Guest& guest) {
        return guest.member && guest.rank == rank;
      });
      if (here) continue;
      if (++absent <= kMostNames) ranks += StrCat(absent == 1 ? " " : ", ", rank);
    }
    if (absent > kMostNames) ranks += StrCat(" and ", absent - kMostNames, " more");
    const double bound = std::chrono::duration<double>(parts_.options.join_bound).count();
    parts_.shared.Joined(
        {ErrorKind::kUnavailable, StrCat("heartbeat: rank", absent == 1 ? "" : "s", ranks,
                                         " did not reach rank 0 within ", bound, " s")});
  }

  void Look() {
    while (const auto lost = detector_.Tick(Clock::now())) {
      detector_.Left(lost->rank);
      Tell(*lost);
    }
  }

  void Tell(const LostRank& lost) {
    // Where most ranks are silent, it is this one that is cut off.
    if (lost.absence == Absence::kSilent && 2 * ++silent_ > parts_.world && silent_ > 1) return;
    if (!parts_.shared.AddLost(lost)) return;
    // First the others, then this process, which may be gone a moment later.
    ToMembers({.type = FrameType::kLost,
               .rank = lost.rank,
               .progress = lost.last,
               .absence = lost.absence,
               .silent_ms = static_cast<std::uint32_t>(lost.silence.count())});
    if (parts_.shared.lost().size() == 1) parts_.on_lost(lost);
  }

  void SayGoodbye() {
    if (!parts_.shared.leaving || parts_.shared.said_goodbye) return;
    detector_.Left(0);
    ToMembers({.type = FrameType::kGoodbye});
    parts_.shared.said_goodbye = true;
  }

  const LoopParts& parts_;
  Listener listener_;
  const Key secret_;
  Detector detector_;
  std::list<Guest> guests_;
  std::vector<pollfd> polls_;
  Clock::time_point next_beat_ = Clock::now();
  const Clock::time_point join_limit_ = Clock::now() + parts_.options.join_bound;
  bool named_ = false;
  int joined_ = 0;
  int silent_ = 0;  // so many ranks were found silent
};

}  // namespace

void RunHub(const LoopParts& parts, Listener listener, const Key& secret) {
  Hub(parts, std::move(listener), secret).Run();
}

}  // namespace gaccd::heartbeat
