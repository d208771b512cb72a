#include "collectives/bootstrap/same_on_all.h"

#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

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

}  // namespace
}  // namespace gaccd
