#include "collectives/bootstrap/share_text.h"

#include <gtest/gtest.h>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

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
