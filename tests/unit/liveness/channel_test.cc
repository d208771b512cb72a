// The channel itself, over real sockets; ranks are threads of this process.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "collectives/comm/threads.h"
#include "collectives/liveness/heartbeat/connection.h"
#include "collectives/liveness/heartbeat/heartbeat.h"
#include "collectives/liveness/heartbeat/loops.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using heartbeat::LostRank;
using heartbeat::Phase;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr HeartbeatOptions kOptions{.interval = milliseconds(50),
                                    .silent_after = milliseconds(2'500)};

// A rank whose connection is open is not lost by silence, on a busy machine either.
constexpr HeartbeatOptions kPatient{.interval = milliseconds(50),
                                    .silent_after = milliseconds(60'000)};
// What a busy machine takes at most for what takes milliseconds.
constexpr milliseconds kLong{60'000};

bool WaitFor(const std::function<bool()>& ready, milliseconds limit = kLong) {
  const auto end = Clock::now() + limit;
  while (!ready()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

Status RunRanks(int ranks, const std::function<Status(Communicator&)>& body) {
  return RunThreadRanks(ranks, {}, body);
}

TEST(Heartbeat, WorldOfOneNeedsNoHub) {
  const auto single = MakeSingle();
  auto heart = ValueOrThrow(Heartbeat::Start(*single, kOptions, [](const LostRank&) { FAIL(); }));
  heart->SetPhase(Phase::kCompute, 1);
  heart->Goodbye();
}

TEST(Heartbeat, ReportsNoneLostIfAllLeaveInAnyOrder) {
  std::atomic<int> lost = 0;
  ExpectOk(RunRanks(5, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto heart,
                           Heartbeat::Start(comm, kOptions, [&](const LostRank&) { ++lost; }));
    std::this_thread::sleep_for(kOptions.silent_after + milliseconds(500 + 100 * comm.rank()));
    heart->Goodbye();
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    return Status::Ok();
  }));
  EXPECT_EQ(lost, 0);
}

// Every rank but the victim hears of the victim.
void ExpectLoss(int ranks, int victim, Absence absence, const HeartbeatOptions& options,
                milliseconds limit, const std::function<void(Heartbeat&, int)>& act) {
  std::atomic<int> right = 0;
  std::atomic<int> reported = 0;
  std::atomic<std::int64_t> slowest_ms = 0;
  ExpectOk(RunRanks(ranks, [&](Communicator& comm) -> Status {
    Clock::time_point start;
    std::atomic<bool> heard = false;
    auto on_lost = [&](const LostRank& lost) {
      ++reported;
      if (lost.rank == victim && lost.absence == absence) ++right;
      heard = true;
    };
    GACCD_ASSIGN_OR_RETURN(auto heart, Heartbeat::Start(comm, options, on_lost));
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    start = Clock::now();
    act(*heart, comm.rank());
    if (comm.rank() == victim) {
      if (absence == Absence::kEnded) heart.reset();
    } else if (WaitFor([&] { return heard.load(); })) {
      const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
      slowest_ms = std::max<std::int64_t>(slowest_ms, took);
    }
    (void)comm.Barrier();
    return Status::Ok();
  }));
  EXPECT_GE(right, ranks - 1);
  EXPECT_EQ(right, reported) << "somebody was named who is well";
  EXPECT_LT(slowest_ms, limit.count());
}

TEST(Heartbeat, ClosedConnectionIsReportedBeforeSilence) {
  ExpectLoss(4, 2, Absence::kEnded, kPatient, kPatient.silent_after / 2, [](Heartbeat&, int) {});
}

TEST(Heartbeat, EndOfHubIsReportedToAll) {
  ExpectLoss(4, 0, Absence::kEnded, kPatient, kPatient.silent_after / 2, [](Heartbeat&, int) {});
}

// Ranks 1 and 3 of five end, and rank 2 when the others have learned of that. What ranks 0 and 4
// then say of it.
std::vector<std::vector<LostRank>> LostTogether() {
  std::vector<std::vector<LostRank>> found(5);
  const Status status = RunRanks(5, [&](Communicator& comm) {
    auto heart = Heartbeat::Start(comm, kPatient, [](const LostRank&) {});
    if (!heart.ok()) return heart.status();
    std::this_thread::sleep_for(8 * kPatient.interval);  // all have beaten
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    if (comm.rank() % 2 == 1) {
      heart->reset();
    } else if (WaitFor([&] { return (*heart)->all_lost_known(); })) {
      if (comm.rank() == 2) heart->reset();
      std::this_thread::sleep_for(milliseconds(300));
      if (*heart) found[static_cast<std::size_t>(comm.rank())] = (*heart)->lost();
    }
    return comm.Barrier();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return {found[0], found[4]};
}

// "Together" is within 200 ms of the real clock: on a busy machine not every time.
TEST(Heartbeat, AllSimultaneousEndsAreReported) {
  bool right = false;
  for (int tries = 0; tries < 20 && !right; ++tries) {
    right = true;
    for (const std::vector<LostRank>& all : LostTogether()) {
      std::vector<int> ranks;
      for (const LostRank& lost : all) {
        ranks.push_back(lost.rank);
        EXPECT_EQ(lost.absence, Absence::kEnded);
        right = right && lost.last.memory_kib > 0;
      }
      std::ranges::sort(ranks);
      right = right && ranks == std::vector{1, 3};
    }
  }
  EXPECT_TRUE(right);
}

TEST(Heartbeat, WaitingRanksNameStuckRank) {
  ExpectLoss(3, 1, Absence::kStalled, kOptions, kLong, [](Heartbeat& heart, int rank) {
    heart.SetMedianUpdate(milliseconds(20));
    heart.SetPhase(rank == 1 ? Phase::kCompute : Phase::kReduce, 5);
  });
}

// A hub of three ranks, and its two members when they are asked for.
class HubTest : public testing::Test {
 protected:
  HubTest() {
    auto listener = ValueOrThrow(heartbeat::Listen(512));
    port_ = listener.port;
    EXPECT_TRUE(heartbeat::FillRandomBytes(secret_).ok());
    threads_.emplace_back([this, at = std::move(listener)]() mutable {
      heartbeat::RunHub(Parts(0), std::move(at), secret_);
    });
  }
  ~HubTest() override {
    for (HeartbeatShared& shared : shared_) shared.stop = true;
    for (std::thread& thread : threads_) thread.join();
  }
  void StartMember(int rank, const std::string& address = "127.0.0.1") {
    threads_.emplace_back([this, rank, address] {
      heartbeat::RunMember(Parts(rank), {{address}, port_, secret_});
    });
  }
  Status Joined(int rank, milliseconds bound) {
    return shared_[static_cast<std::size_t>(rank)].WaitUntilJoined(bound);
  }
  heartbeat::LoopParts Parts(int rank) {
    return {shared_[static_cast<std::size_t>(rank)], kOptions,
            [this](const LostRank& lost) {
              if (lost.absence == Absence::kEnded) ++ended_;
              ++lost_;
            },
            rank, 3};
  }
  [[nodiscard]] heartbeat::Socket Connect() const {
    auto socket = heartbeat::StartConnect("127.0.0.1", port_);
    if (!socket.ok()) return {};
    pollfd ready{socket->get(), POLLOUT, 0};
    (void)poll(&ready, 1, static_cast<int>(kLong.count()));
    return heartbeat::Connected(*socket) ? std::move(*socket) : heartbeat::Socket();
  }

  std::array<HeartbeatShared, 3> shared_;
  std::atomic<int> lost_ = 0;
  std::atomic<int> ended_ = 0;  // of these, those known to have ended
  std::uint16_t port_ = 0;
  heartbeat::Key secret_{};
  std::vector<std::thread> threads_;
};

TEST_F(HubTest, AcceptsMembersOverIpv6) {
  const auto own = ValueOrThrow(heartbeat::OwnAddresses());
  if (std::ranges::find(own, "::1") == own.end()) GTEST_SKIP() << "this system has no IPv6";
  StartMember(1, "::1");
  StartMember(2);
  EXPECT_OK(Joined(1, kLong));
  EXPECT_OK(Joined(2, kLong));
}

// Strangers on the hub's port, while one rank is there and one is not: none of it disturbs the run.
TEST_F(HubTest, RefusesUnauthenticatedPeers) {
  StartMember(1);
  ASSERT_TRUE(Joined(1, kLong).ok());
  // Wrong secret, noise, a second connection with the right secret that claims to be rank 1 and
  // then says goodbye for it.
  heartbeat::Key wrong = secret_;
  wrong[0] ^= std::byte{1};
  for (const heartbeat::Key& key : {wrong, secret_}) {
    heartbeat::Connection connection(Connect(), heartbeat::Direction::kToHub, key);
    heartbeat::Nonce nonce{};
    connection.Send({.type = heartbeat::FrameType::kHello, .rank = 1, .nonce = nonce});
    connection.SetKey(*heartbeat::WelcomeKey(key, 1, nonce));
    std::optional<heartbeat::Frame> welcome;
    WaitFor([&] { return (welcome = connection.Receive()).has_value() || connection.closed(); });
    EXPECT_EQ(welcome.has_value(), key == secret_);
    if (welcome) connection.SetKey(*heartbeat::ConnectionKey(secret_, 1, nonce, welcome->nonce));
    connection.Send({.type = heartbeat::FrameType::kGoodbye, .rank = 1});
  }
  std::vector<std::byte> noise(4096, std::byte{0x5a});
  const auto loud = Connect();
  std::size_t done = 0;
  (void)heartbeat::WriteSome(loud, noise.data(), noise.size(), &done);

  StartMember(2);
  ASSERT_TRUE(Joined(0, kLong).ok());
  std::this_thread::sleep_for(kOptions.silent_after + milliseconds(100));
  EXPECT_EQ(lost_, 0);
  EXPECT_FALSE(Connect().valid()) << "all are there: the door is closed";
  shared_[1].stop = true;  // a real end: it must still be noticed after all that
  EXPECT_TRUE(WaitFor([&] { return lost_ == 2; })) << "by the hub and rank 2";
}

TEST_F(HubTest, MemberThatEndsBeforeAllJoinedHasEnded) {
  StartMember(1);
  ASSERT_OK(Joined(1, kLong));
  shared_[1].stop = true;
  threads_.back().join();
  threads_.pop_back();
  std::this_thread::sleep_for(4 * kOptions.interval);  // the hub sees its connection closed
  StartMember(2);
  EXPECT_TRUE(WaitFor([&] { return lost_ >= 1; }));
  EXPECT_GE(ended_, 1);
}

// As many as wait at most, and then the members: those come in all the same.
TEST_F(HubTest, SilentStrangersKeepNoMemberOut) {
  std::vector<heartbeat::Socket> silent;
  for (int i = 0; i < 80; ++i) silent.push_back(Connect());
  StartMember(1);
  StartMember(2);
  EXPECT_TRUE(Joined(0, milliseconds(2'900)).ok())
      << "before the strangers are dropped for silence, after 3 s";
}

TEST_F(HubTest, FloodOfConnectionsKeepsNoMemberOut) {
  StartMember(1);
  ASSERT_TRUE(Joined(1, kLong).ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> flood;
  for (int i = 0; i < 2; ++i) {
    flood.emplace_back([&] {
      while (!stop) (void)heartbeat::StartConnect("127.0.0.1", port_);
    });
  }
  StartMember(2);
  EXPECT_TRUE(Joined(0, kLong).ok());
  std::this_thread::sleep_for(kOptions.silent_after + milliseconds(100));
  EXPECT_EQ(lost_, 0) << "the hub's one thread has time for its members";
  stop = true;
  for (std::thread& one : flood) one.join();
}

// What rank 1 and the hub said to each other, recorded and said again.
TEST_F(HubTest, RefusesReplayedMessages) {
  constexpr heartbeat::Nonce kNonce{std::byte{1}};
  const auto greet = [&] {
    heartbeat::Connection connection(Connect(), heartbeat::Direction::kToHub, secret_);
    connection.Send({.type = heartbeat::FrameType::kHello, .rank = 1, .nonce = kNonce});
    connection.SetKey(*heartbeat::WelcomeKey(secret_, 1, kNonce));
    return connection;
  };
  const auto hear = [](heartbeat::Connection& connection) {
    std::optional<heartbeat::Frame> frame;
    WaitFor([&] { return (frame = connection.Receive()).has_value() || connection.closed(); });
    return frame;
  };
  heartbeat::Connection real = greet();
  const auto welcome = hear(real);
  ASSERT_TRUE(welcome.has_value());
  const heartbeat::Key key = *heartbeat::ConnectionKey(secret_, 1, kNonce, welcome->nonce);
  // The first connection's beat, on a second one with the same hello.
  heartbeat::Connection second = greet();
  ASSERT_TRUE(hear(second).has_value());
  second.SetKey(key);
  second.Send({.type = heartbeat::FrameType::kBeat, .rank = 1});
  EXPECT_FALSE(hear(second).has_value());
  EXPECT_TRUE(second.closed());
  for (const auto type : {heartbeat::FrameType::kBeat, heartbeat::FrameType::kGoodbye}) {
    // The first message on a connection of its own, then the same bytes again.
    heartbeat::Socket socket = Connect();
    const heartbeat::WireFrame hello =
        Encode({.type = heartbeat::FrameType::kHello, .rank = 2, .nonce = kNonce},
               heartbeat::Direction::kToHub, secret_);
    std::size_t done = 0;
    (void)heartbeat::WriteSome(socket, hello.data(), hello.size(), &done);
    heartbeat::WireFrame answer{};
    std::size_t got = 0;
    WaitFor([&] {
      std::size_t more = 0;
      (void)heartbeat::ReadSome(socket, answer.data() + got, answer.size() - got, &more);
      return (got += more) == answer.size();
    });
    const auto here =
        Decode(answer, heartbeat::Direction::kFromHub, *heartbeat::WelcomeKey(secret_, 2, kNonce));
    ASSERT_TRUE(here.ok());
    const heartbeat::Key mine = *heartbeat::ConnectionKey(secret_, 2, kNonce, here->nonce);
    const heartbeat::WireFrame once =
        Encode({.type = type, .rank = 2, .number = 1}, heartbeat::Direction::kToHub, mine);
    const auto closed = [&] {
      std::byte one{};
      std::size_t more = 0;
      return heartbeat::ReadSome(socket, &one, 1, &more) == heartbeat::Transfer::kClosed;
    };
    (void)heartbeat::WriteSome(socket, once.data(), once.size(), &done);
    (void)heartbeat::WriteSome(socket, once.data(), once.size(), &done);
    EXPECT_TRUE(WaitFor(closed)) << static_cast<int>(type);
  }
}

// A stranger where the hub is looked for, who has heard a welcome of the hub's to somebody else.
TEST(Heartbeat, RefusesReplayedWelcome) {
  auto listener = ValueOrThrow(heartbeat::Listen(16));
  heartbeat::Key secret{};
  ASSERT_TRUE(heartbeat::FillRandomBytes(secret).ok());
  // Of a hello with another nonce, and one that no hello is in.
  std::vector<heartbeat::WireFrame> recorded;
  for (const heartbeat::Key& key :
       {*heartbeat::WelcomeKey(secret, 1, heartbeat::Nonce{std::byte{7}}), secret}) {
    recorded.push_back(
        Encode({.type = heartbeat::FrameType::kWelcome}, heartbeat::Direction::kFromHub, key));
  }
  HeartbeatShared shared;
  HeartbeatOptions options = kOptions;
  options.join_bound = milliseconds(3'000);  // for two connections
  const heartbeat::LoopParts parts{shared, options, [](const LostRank&) {}, 1, 2};
  const heartbeat::HubAddress address{{"127.0.0.1"}, listener.port, secret};
  std::thread member([&] { heartbeat::RunMember(parts, address); });
  for (const heartbeat::WireFrame& wire : recorded) {
    heartbeat::Socket guest;
    EXPECT_TRUE(WaitFor([&] { return (guest = heartbeat::Accept(listener.socket)).valid(); }));
    std::size_t done = 0;
    (void)heartbeat::WriteSome(guest, wire.data(), wire.size(), &done);
  }
  listener.socket = {};
  EXPECT_FALSE(shared.WaitUntilJoined(kLong).ok());
  shared.stop = true;
  member.join();
}

TEST(Heartbeat, OwnAddressIsNotHubOfAnotherMachine) {
  const std::vector<std::string> own{"10.0.0.2", "172.17.0.1", "127.0.0.1"};
  EXPECT_EQ(heartbeat::WithoutLocalAddresses({"10.0.0.1", "172.17.0.1", "127.0.0.1"}, own),
            std::vector<std::string>{"10.0.0.1"});
  EXPECT_EQ(heartbeat::WithoutLocalAddresses(own, own), own) << "one machine plays two";
}

TEST(Heartbeat, NamesFlagIfThereIsNoAddressForOtherNodes) {
  const Status absent(ErrorKind::kUnavailable, "rank 1 on n1 did not connect");
  const std::vector<std::string> loopback{"127.0.0.1"};
  for (const auto& offered : {loopback, {}, {"127.0.0.1", "::1"}}) {
    EXPECT_THAT(
        heartbeat::ExplainAbsence(absent, offered, 2),
        IsError(ErrorKind::kConfig, "--heartbeat-seconds=0", "rank 1 on n1 did not connect"));
  }
  const auto kind = [](const Status& status, const std::vector<std::string>& offered, int nodes) {
    return heartbeat::ExplainAbsence(status, offered, nodes).kind();
  };
  EXPECT_EQ(kind(absent, {"10.0.0.1", "127.0.0.1"}, 2), ErrorKind::kUnavailable);
  EXPECT_EQ(kind(absent, {"fd00::2", "127.0.0.1", "::1"}, 2), ErrorKind::kUnavailable);
  EXPECT_EQ(kind(absent, loopback, 1), ErrorKind::kUnavailable);
  EXPECT_EQ(kind({ErrorKind::kOs, "bind"}, {}, 2), ErrorKind::kOs);
  EXPECT_OK(heartbeat::ExplainAbsence(Status::Ok(), loopback, 2)) << "one machine plays two";
}

TEST(Heartbeat, MemberWithoutHubReportsIt) {
  HeartbeatShared shared;
  HeartbeatOptions options = kOptions;
  options.join_bound = milliseconds(300);
  const heartbeat::LoopParts parts{shared, options, [](const LostRank&) {}, 1, 2};
  auto gone = heartbeat::Listen(1);
  const heartbeat::HubAddress address{{"127.0.0.1"}, gone->port, {}};
  gone->socket = {};
  std::thread member([&] { heartbeat::RunMember(parts, address); });
  const Status status = shared.WaitUntilJoined(kLong);
  member.join();
  EXPECT_THAT(status, HasMessage(testing::HasSubstr("127.0.0.1")));
}

TEST(Heartbeat, HubNamesUnreachedRanks) {
  HeartbeatShared shared[2];
  HeartbeatOptions options = kOptions;
  options.join_bound = milliseconds(2'500);  // rank 2 must come in time
  auto listener = ValueOrThrow(heartbeat::Listen(4));
  const heartbeat::HubAddress address{{"127.0.0.1"}, listener.port, {}};
  const heartbeat::LoopParts hub{shared[0], options, [](const LostRank&) {}, 0, 4};
  const heartbeat::LoopParts here{shared[1], options, [](const LostRank&) {}, 2, 4};
  std::thread first([&, at = std::move(listener)]() mutable {
    heartbeat::RunHub(hub, std::move(at), address.secret);
  });
  std::thread second([&] { heartbeat::RunMember(here, address); });
  EXPECT_TRUE(shared[1].WaitUntilJoined(kLong).ok());
  EXPECT_THAT(shared[0].WaitUntilJoined(kLong),
              HasMessage("heartbeat: ranks 1, 3 did not reach rank 0 within 2.5 s"));
  for (HeartbeatShared& one : shared) one.stop = true;
  first.join();
  second.join();
}

TEST(Heartbeat, MessageNamesRankHostAndOperation) {
  const Topology topology{.hosts = {"n0", "n1"}, .node_of = {0, 1}, .nodes = 2};
  const LostRank lost{1,
                      Absence::kSilent,
                      milliseconds(5'100),
                      {.phase = Phase::kCompute, .micro_step = 2, .update = 11}};
  EXPECT_EQ(
      Describe(lost, topology),
      "rank 1 on n1 has been silent for 5.1 s: stopped or disconnected; last seen in compute of "
      "update 12, micro-step 3");
  LostRank reduces = lost;
  reduces.last.phase = Phase::kReduce;
  EXPECT_THAT(Describe(reduces, topology), testing::EndsWith("last seen in reduce of update 12"));
  LostRank between = lost;
  for (const Phase phase : {Phase::kEvaluate, Phase::kSave}) {
    between.last = {.phase = phase, .update = 12};
    EXPECT_TRUE(
        Describe(between, topology).ends_with(std::string(Name(phase)) + " after update 12"));
  }
}

}  // namespace
}  // namespace gaccd
