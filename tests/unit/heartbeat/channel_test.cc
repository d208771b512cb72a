// The channel itself, over real sockets; ranks are threads of this process.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "collectives/comm/threads.h"
#include "collectives/heartbeat/connection.h"
#include "collectives/heartbeat/heartbeat.h"
#include "collectives/heartbeat/loops.h"

namespace gaccd {
namespace {

using heartbeat::LostRank;
using heartbeat::Phase;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr HeartbeatOptions kOptions{.interval = milliseconds(50),
                                    .silent_after = milliseconds(1'500)};

bool WaitFor(const std::function<bool()>& ready, milliseconds limit = milliseconds(10'000)) {
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

TEST(Heartbeat, AWorldOfOneNeedsNone) {
  const auto single = MakeSingle();
  auto heart = Heartbeat::Start(*single, kOptions, [](const LostRank&) { FAIL(); });
  ASSERT_TRUE(heart.ok());
  (*heart)->Note(Phase::kCompute, 1);
  (*heart)->Goodbye();
}

TEST(Heartbeat, NobodyIsLostWhenAllLeaveInAnyOrder) {
  std::atomic<int> lost = 0;
  const Status status = RunRanks(5, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(auto heart,
                           Heartbeat::Start(comm, kOptions, [&](const LostRank&) { ++lost; }));
    std::this_thread::sleep_for(milliseconds(2'000 + 100 * comm.rank()));
    heart->Goodbye();
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(lost, 0);
}

// Every rank but the victim hears of the victim.
void ExpectLoss(int ranks, int victim, Absence absence, milliseconds limit,
                const std::function<void(Heartbeat&, int)>& act) {
  std::atomic<int> right = 0;
  std::atomic<int> told = 0;
  std::atomic<std::int64_t> slowest_ms = 0;
  const Status status = RunRanks(ranks, [&](Communicator& comm) -> Status {
    Clock::time_point start;
    std::atomic<bool> heard = false;
    auto on_lost = [&](const LostRank& lost) {
      ++told;
      if (lost.rank == victim && lost.absence == absence) ++right;
      heard = true;
    };
    GACCD_ASSIGN_OR_RETURN(auto heart, Heartbeat::Start(comm, kOptions, on_lost));
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
  });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GE(right, ranks - 1);
  EXPECT_EQ(right, told) << "somebody was named who is well";
  EXPECT_LT(slowest_ms, limit.count());
}

TEST(Heartbeat, AClosedConnectionIsKnownToAllWithinASecond) {
  ExpectLoss(4, 2, Absence::kEnded, milliseconds(1'000), [](Heartbeat&, int) {});
}

TEST(Heartbeat, TheEndOfTheHubIsKnownToAll) {
  ExpectLoss(4, 0, Absence::kEnded, milliseconds(1'000), [](Heartbeat&, int) {});
}

TEST(Heartbeat, AStuckRankIsNamedByThoseWhoWait) {
  ExpectLoss(3, 1, Absence::kStalled, milliseconds(8'000), [](Heartbeat& heart, int rank) {
    heart.SetMedianStep(milliseconds(20));
    heart.Note(rank == 1 ? Phase::kCompute : Phase::kReduce, 5);
  });
}

// Strangers on the hub's port: none of it disturbs the run.
TEST(Heartbeat, StrangersAreNotBelieved) {
  HeartbeatShared shared;
  auto listener = heartbeat::Listen(16);
  ASSERT_TRUE(listener.ok());
  const std::uint16_t port = listener->port;
  heartbeat::Key secret{};
  ASSERT_TRUE(heartbeat::FillRandom(secret).ok());
  std::atomic<int> lost = 0;
  const heartbeat::LoopParts parts{shared, kOptions, [&](const LostRank&) { ++lost; }, 0, 2};
  std::thread hub([&] { heartbeat::RunHub(parts, std::move(*listener), secret); });

  HeartbeatShared member_shared;
  const heartbeat::HubAddress address{{"127.0.0.1"}, port, secret};
  const heartbeat::LoopParts member_parts{member_shared, kOptions, [&](const LostRank&) { ++lost; },
                                          1, 2};
  std::thread member([&] { heartbeat::RunMember(member_parts, address); });
  ASSERT_TRUE(shared.WaitUntilJoined(milliseconds(5'000)).ok());

  // Wrong secret, noise, a second connection with the right secret that claims to be rank 1 and
  // then says goodbye for it, and twenty silent ones.
  std::vector<heartbeat::Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(*heartbeat::StartConnect("127.0.0.1", port));
  heartbeat::Key wrong = secret;
  wrong[0] ^= std::byte{1};
  for (const heartbeat::Key& key : {wrong, secret}) {
    heartbeat::Connection connection(*heartbeat::StartConnect("127.0.0.1", port),
                                     heartbeat::Direction::kToHub, key);
    std::this_thread::sleep_for(milliseconds(100));
    heartbeat::Nonce nonce{};
    connection.Send({.type = heartbeat::FrameType::kHello, .rank = 1, .nonce = nonce});
    std::optional<heartbeat::Frame> welcome;
    WaitFor([&] { return (welcome = connection.Receive()).has_value() || connection.closed(); },
            milliseconds(1'000));
    EXPECT_EQ(welcome.has_value(), key == secret);
    if (welcome) connection.SetKey(heartbeat::ConnectionKey(secret, 1, nonce, welcome->nonce));
    connection.Send({.type = heartbeat::FrameType::kGoodbye, .rank = 1});
  }
  std::vector<std::byte> noise(4096, std::byte{0x5a});
  const auto loud = *heartbeat::StartConnect("127.0.0.1", port);
  std::size_t done = 0;
  (void)heartbeat::WriteSome(loud, noise.data(), noise.size(), &done);

  std::this_thread::sleep_for(milliseconds(2'000));
  EXPECT_EQ(lost, 0);
  member_shared.stop = true;  // a real end: it must still be noticed after all that
  member.join();
  EXPECT_TRUE(WaitFor([&] { return lost == 1; }, milliseconds(2'000)));
  shared.stop = true;
  hub.join();
}

TEST(Heartbeat, AMemberWithoutAHubSaysSo) {
  HeartbeatShared shared;
  HeartbeatOptions options = kOptions;
  options.join_bound = milliseconds(300);
  const heartbeat::LoopParts parts{shared, options, [](const LostRank&) {}, 1, 2};
  auto gone = heartbeat::Listen(1);
  const heartbeat::HubAddress address{{"127.0.0.1"}, gone->port, {}};
  gone->socket.Close();
  std::thread member([&] { heartbeat::RunMember(parts, address); });
  const Status status = shared.WaitUntilJoined(milliseconds(5'000));
  member.join();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("127.0.0.1"), std::string::npos) << status.message();
}

TEST(Heartbeat, TheMessageSaysWhoWhereAndWhat) {
  const Topology topology{.hosts = {"n0", "n1"}, .node_of = {0, 1}, .nodes = 2};
  const LostRank lost{1,
                      Absence::kSilent,
                      milliseconds(5'100),
                      {.phase = Phase::kCompute, .micro_step = 2, .update = 11}};
  EXPECT_EQ(Describe(lost, topology),
            "rank 1 on n1 is silent for 5.1 s: stopped, or cut off; last seen in compute of update "
            "12, micro-step 3");
}

}  // namespace
}  // namespace gaccd
