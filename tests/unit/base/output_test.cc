#include "collectives/base/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "collectives/base/files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {

namespace {

class OutputFileTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return temp_.Path(name); }
  static std::string Refusal(const std::string& path) {
    const Status status = CheckOutputFile(path);
    EXPECT_THAT(status, IsError(ErrorKind::kIo, "'" + path + "'"));
    return status.message();
  }

  const TempFolder temp_;
  const std::string folder_ = temp_.path();
};

TEST_F(OutputFileTest, AcceptsCreatableOrReplaceableFile) {
  EXPECT_EQ(*OutputTarget(Path("new")), Path("new"));
  EXPECT_TRUE(CheckOutputFile(Path("new")).ok());
  ASSERT_TRUE(ReplaceFile(Path("old"), "text", false).ok());
  EXPECT_TRUE(CheckOutputFile(Path("old")).ok());
  EXPECT_EQ(*ReadStart(Path("old"), 9), "text");
  EXPECT_THAT(*ListFolder(folder_, 9), ElementsAre("old")) << "nothing of the check is left";
}

TEST_F(OutputFileTest, ReplacesOnlyEarlierOutput) {
  EXPECT_TRUE(CheckReplaces(Path("new"), "<!doctype", "a report").ok());
  ASSERT_TRUE(ReplaceFile(Path("empty"), "", false).ok());
  EXPECT_TRUE(CheckReplaces(Path("empty"), "<!doctype", "a report").ok());
  ASSERT_TRUE(ReplaceFile(Path("old"), "<!doctype html>", false).ok());
  EXPECT_TRUE(CheckReplaces(Path("old"), "<!doctype", "a report").ok());
  EXPECT_TRUE(CheckReplaces(Path("old"), "html", "a report", 10).ok());
  EXPECT_THAT(CheckReplaces(Path("old"), "html", "a report", 15), HasKind(ErrorKind::kIo));
  ASSERT_TRUE(ReplaceFile(Path("job"), "name:", false).ok());
  EXPECT_THAT(CheckReplaces(Path("job"), "<!doctype", "a report"),
              IsError(ErrorKind::kIo, "'" + Path("job") + "' exists and is not a report"));
}

TEST_F(OutputFileTest, FollowsOwnLink) {
  ASSERT_TRUE(MakeFolders(Path("far")).ok());
  ASSERT_EQ(::symlink("far/file", Path("one").c_str()), 0);
  ASSERT_EQ(::symlink(Path("one").c_str(), Path("two").c_str()), 0);
  EXPECT_EQ(*OutputTarget(Path("two")), Path("far/file")) << "which is not there yet";
  ASSERT_TRUE(ReplaceFile(Path("far/file"), "", false).ok());
  EXPECT_EQ(*OutputTarget(Path("two")), Path("far/file"));
  ASSERT_EQ(::symlink("loop", Path("loop").c_str()), 0);
  EXPECT_THAT(Refusal(Path("loop")), HasSubstr("Too many levels"));
}

TEST_F(OutputFileTest, RefusesNonFiles) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(Path("fifo")), HasSubstr("found a FIFO"));
  EXPECT_THAT(Refusal(folder_), HasSubstr("found a folder"));
  EXPECT_THAT(Refusal(Path("new/")), HasSubstr("no name of a file"));
  EXPECT_THAT(Refusal(""), HasSubstr("no name of a file"));
  EXPECT_THAT(Refusal("/dev/full"), HasSubstr("found a device"));
  EXPECT_THAT(Refusal("/dev/stdout"), HasSubstr("found an open file"));
  ASSERT_EQ(::symlink("/dev/full", Path("link").c_str()), 0);
  EXPECT_THAT(Refusal(Path("link")), HasSubstr("found a device"));
  EXPECT_THAT(Refusal(Path("no/file")), HasSubstr("there is no folder '" + Path("no") + "'"));
  const std::string longest(250, 'x');
  EXPECT_THAT(Refusal(Path(longest)), HasSubstr("File name too long"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, Path("socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(Refusal(Path("socket")), HasSubstr("found a socket"));
  ::close(fd);
}

TEST_F(OutputFileTest, DoesNotFollowLinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a link away";
  ASSERT_EQ(::symlink("victim", Path("link").c_str()), 0);
  ASSERT_EQ(::lchown(Path("link").c_str(), 4711, 4711), 0);
  EXPECT_THAT(Refusal(Path("link")), HasSubstr("a link made by user 4711"));
}

}  // namespace

}  // namespace gaccd
