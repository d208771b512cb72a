// What the ranks of a node share of the data.
#include "daemon/data/node_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/data/dataset.h"
#include "daemon/data/formats/array.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

Status NoTick() { return Status::Ok(); }

std::string ArrayText(const Array& array) {
  return {reinterpret_cast<const char*>(array.data.data()), array.data.size()};
}

class NodeShareTest : public ::testing::Test {
 protected:
  std::string Images(const std::string& name) {
    return folder_.Write(name, Gzip(IdxHeader(8, {50, 8}) + Counting(400)));
  }
  TempFolder folder_;
};

TEST_F(NodeShareTest, OtherRanksReadMemoryOfLeader) {
  const std::string path = Images("a name with spaces.gz");
  NodeShare leader = NodeShare::Leader(NoTick);
  const auto unpacked = ValueOrThrow(LoadIdx(path, &leader));
  std::filesystem::remove(path);  // they need it no more
  NodeShare other = NodeShare::Follower(leader.Text(), NoTick);
  const auto mapped = ValueOrThrow(LoadIdx(path, &other));
  EXPECT_EQ(mapped.shape, (Shape{50, 8}));
  EXPECT_EQ(ArrayText(mapped), Counting(400));
  EXPECT_EQ(ArrayText(unpacked), Counting(400));
  EXPECT_EQ(leader.note() + other.note(), "");
  EXPECT_TRUE(LoadIdx(path, &leader).ok());  // nor does the leader, for a second set of it
}

TEST_F(NodeShareTest, MemoryOutlivesLeader) {
  const std::string path = Images("images.gz");
  Result<Array> mapped = Status(ErrorKind::kInternal, "not opened");
  {
    NodeShare leader = NodeShare::Leader(NoTick);
    const auto unpacked = LoadIdx(path, &leader);
    NodeShare other = NodeShare::Follower(leader.Text(), NoTick);
    mapped = LoadIdx(path, &other);
  }
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(ArrayText(*mapped), Counting(400));
}

TEST_F(NodeShareTest, UnpacksAgainIfMemoryIsUnreachable) {
  const std::string path = Images("images.gz");
  std::string text;
  {
    NodeShare leader = NodeShare::Leader(NoTick);
    ASSERT_TRUE(LoadIdx(path, &leader).ok());
    text = leader.Text();
  }
  // Closed, as in a process that has ended; or the descriptor of another file.
  const std::string other_file = StrCat("unpacked /proc/self/exe 1:1 416 ", path, "\n");
  for (const std::string& stale : {text, other_file, std::string("unpacked\nfinite\n\n \n")}) {
    NodeShare other = NodeShare::Follower(stale, NoTick);
    const auto own = ValueOrThrow(LoadIdx(path, &other));
    EXPECT_EQ(ArrayText(own), Counting(400));
    EXPECT_EQ(other.note().empty(), stale.size() < 30);
  }
}

TEST_F(NodeShareTest, DoesNotPublishDamagedData) {
  const std::string gzip = Gzip(IdxHeader(8, {50, 8}) + Counting(400));
  const std::string path = folder_.Write("cut.gz", gzip.substr(0, gzip.size() - 20));
  NodeShare leader = NodeShare::Leader(NoTick);
  EXPECT_THAT(LoadIdx(path, &leader), HasKind(ErrorKind::kData));
  EXPECT_EQ(leader.Text(), "");
}

TEST_F(NodeShareTest, ErrorOfOtherRankEndsOpen) {
  NodeShare leader =
      NodeShare::Leader([] { return Status(ErrorKind::kUnavailable, "rank 3 is lost"); });
  EXPECT_THAT(LoadIdx(Images("images.gz"), &leader).status(),
              IsError(ErrorKind::kUnavailable, "rank 3 is lost"));
}

// Values are looked at once a node: what was finite for the leader is not read by the others.
TEST_F(NodeShareTest, ChecksValuesOnce) {
  std::vector<float> values(32, 1.5F);
  const auto write = [&](const std::string& name, const std::string& shape, std::size_t count) {
    return folder_.Write(name, NpyHeader(NpyDictionary("<f4", shape)) +
                                   Raw(std::span<const float>(values).first(count)));
  };
  const NpySpec source{.features = write("x.npy", "(8, 4)", 32),
                       .targets = write("y.npy", "(8, 1)", 8)};
  NodeShare leader = NodeShare::Leader(NoTick);
  ASSERT_TRUE(OpenDataset(source, {}, {}, &leader).ok());
  values[3] = std::numeric_limits<float>::infinity();
  ASSERT_EQ(write("x.npy", "(8, 4)", 32), source.features);
  NodeShare other = NodeShare::Follower(leader.Text(), NoTick);
  EXPECT_TRUE(OpenDataset(source, {}, {}, &other).ok());
  NodeShare second = NodeShare::Leader(NoTick);
  EXPECT_FALSE(OpenDataset(source, {}, {}, &second).ok());
  EXPECT_THAT(second.Text(), Not(HasSubstr("x.npy")));
}

}  // namespace
}  // namespace gaccd
