#include "collectives/bootstrap/agree.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tick_counter.h"

namespace gaccd {

namespace {

TEST(WorkTogetherTest, WaitsForSlowRanks) {
  std::vector<int> ticks(3);
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& inner) {
    TickCounter comm(inner);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Agreement worked = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
      for (int i = 0; i < 4 * comm.rank(); ++i) GACCD_RETURN_IF_ERROR(tick());
      return Status::Ok();
    });
    ticks[rank] = comm.ticks();
    return worked.status;
  }));
  EXPECT_EQ(ticks, (std::vector{0, 4, 8}));
}

TEST(WorkTogetherTest, AllRanksReturnErrorOfWork) {
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& comm) {
    const Agreement worked = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
      if (comm.rank() == 1) return {ErrorKind::kData, "bad file"};
      return tick();
    });
    EXPECT_THAT(worked.status, IsError(ErrorKind::kData, "rank 1 on ", "bad file"));
    EXPECT_EQ(worked.reporting_rank, 1);
    return Status::Ok();
  }));
}

TEST(AgreeOnTest, ErrorOfAllRanksNamesNoRank) {
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& comm) {
    const Status same(ErrorKind::kConfig, "--resume: there is no run folder 'x'");
    EXPECT_EQ(AgreeOn(comm, same).status.message(), same.message());
    const Status own = comm.rank() == 2 ? Status(ErrorKind::kData, "bad") : Status::Ok();
    const Status agreed = AgreeOn(comm, own).status;
    EXPECT_THAT(agreed, IsError(ErrorKind::kData, "rank 2 on node0: bad"));
    EXPECT_EQ(AgreeOn(comm, agreed).status.message(), agreed.message()) << "agreed before";
    const Agreement different = AgreeOn(comm, {ErrorKind::kData, StrCat("line ", comm.rank())});
    EXPECT_THAT(different.status, IsError(ErrorKind::kData, "rank 0 on node0: line 0"));
    const auto kind = comm.rank() == 1 ? ErrorKind::kData : ErrorKind::kIo;
    EXPECT_THAT(AgreeOn(comm, {kind, "bad"}).status,
                IsError(ErrorKind::kIo, "rank 0 on node0: bad"));
    return Status::Ok();
  }));
}

// Of what a work reads, an error of a tick may look like damage.
TEST(WorkTogetherTest, LostRanksAreTheError) {
  Status found;
  (void)RunThreadRanks(2, {}, [&](Communicator& comm) {
    if (comm.rank() == 1) return Status(ErrorKind::kOs, "gone");
    int calls = 0;
    found = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
              while (tick().ok()) ++calls;
              EXPECT_FALSE(tick().ok());
              return {ErrorKind::kData, "cannot read"};
            }).status;
    EXPECT_EQ(calls, 0);
    return found;
  });
  EXPECT_THAT(found, HasKind(ErrorKind::kUnavailable));
}

// The errors of all ranks, by rank; empty where there was none.
std::vector<std::string> CheckOn(const std::vector<std::string>& digests) {
  std::vector<std::string> messages(digests.size());
  ExpectOk(RunThreadRanks(static_cast<int>(digests.size()), {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Status status = CheckSameOnAllRanks(comm, "flags", digests[rank]);
    if (!status.ok()) {
      EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
      messages[rank] = status.message();
    }
    return Status::Ok();
  }));
  return messages;
}

TEST(SameOnAllRanksTest, AcceptsEqualDigests) {
  for (const std::string& message : CheckOn({"12ab", "12ab", "12ab"})) EXPECT_EQ(message, "");
  EXPECT_EQ(CheckOn({"alone"})[0], "");
  EXPECT_EQ(CheckOn({"", ""})[1], "");
}

TEST(SameOnAllRanksTest, NamesDifferingRankOnAllRanks) {
  const auto comm = MakeSingle();
  const std::string host = comm->topology().hosts[0];
  const std::vector<std::string> messages = CheckOn({"12ab", "12ab", "77cd", "12ab"});
  for (const std::string& message : messages) {
    EXPECT_EQ(message, messages[0]);
    EXPECT_NE(message.find("flags must be the same on all ranks: 3 of 4 ranks"), std::string::npos)
        << message;
    EXPECT_NE(message.find("'12ab', rank 2 on "), std::string::npos) << message;
    EXPECT_NE(message.find("has '77cd'"), std::string::npos) << message;
  }
}

TEST(SameOnAllRanksTest, DetectsPrefix) {
  EXPECT_NE(CheckOn({"abc", "ab"})[0], "");
  EXPECT_NE(CheckOn({"", "a"})[1], "");
  EXPECT_NE(CheckOn({std::string("a\0b", 3), std::string("a\0c", 3)})[1], "");
}

TEST(SameOnAllRanksTest, CountsManyDifferingRanks) {
  std::vector<std::string> digests(12, "usual");
  digests.resize(23, "odd");
  EXPECT_NE(CheckOn(digests)[0].find("and 3 more differ"), std::string::npos);
}

TEST(SameOnAllRanksTest, RefusesTooLongDigest) {
  const auto comm = MakeSingle();
  EXPECT_THAT(CheckSameOnAllRanks(*comm, "binary", std::string(129, 'x')),
              HasKind(ErrorKind::kInternal));
}

TEST(GatherText, AnyLengthAndContent) {
  const std::vector<std::string> wanted = {"", "a", std::string("x\0\n\xff", 4),
                                           std::string(70'000, 'z')};
  ASSERT_OK(RunThreadRanks(4, {}, [&](Communicator& comm) {
    const auto texts = GatherText(comm, wanted[static_cast<std::size_t>(comm.rank())]);
    EXPECT_TRUE(texts.ok());
    if (texts.ok()) {
      EXPECT_EQ(*texts, wanted);
    }
    return Status::Ok();
  }));
}

TEST(ShareFromRank, ErrorsOfAnyLength) {
  const std::string message(3000, 'm');
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& comm) {
    Result<std::string> mine = std::string("other");
    if (comm.rank() == 2) mine = Status(ErrorKind::kData, message);
    const auto shared = ShareFromRank(comm, 2, mine);
    EXPECT_THAT(shared.status(), IsError(ErrorKind::kData, message));
    EXPECT_THAT(AgreeOn(comm, mine.status()).status, IsError(ErrorKind::kData, message));
    return Status::Ok();
  }));
}

}  // namespace

}  // namespace gaccd
