#include "daemon/rundir/safe_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kSomebody = 4711;

class SafePlaceTest : public testing::Test {
 protected:
  SafePlaceTest() {
    fs::create_directories(Run());
    fs::permissions(dir_.path(), fs::perms(0755));
  }
  [[nodiscard]] std::string Scratch() const { return dir_.path() + "/scratch"; }
  [[nodiscard]] std::string Run() const { return Scratch() + "/run"; }
  void SetScratch(uid_t owner, mode_t mode) const {
    ASSERT_EQ(::chown(Scratch().c_str(), owner, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(::chmod(Scratch().c_str(), mode), 0);
  }

  TempFolder dir_;
};

TEST_F(SafePlaceTest, AcceptsOwnFolders) {
  EXPECT_TRUE(CheckSafePlace(Run()).ok());
  ASSERT_EQ(::chmod(Scratch().c_str(), 0777), 0);
  EXPECT_TRUE(CheckSafePlace(Run()).ok()) << "the user's own choice";
  fs::create_symlink(Run(), dir_.path() + "/link");
  EXPECT_TRUE(CheckSafePlace(dir_.path() + "/link").ok()) << "the user's own link";
}

TEST_F(SafePlaceTest, RefusesFoldersOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make folders of others";
  const std::string link = dir_.path() + "/link";
  fs::create_symlink(fs::absolute(Run()), link);
  struct Case {
    uid_t owner;
    mode_t mode;
    bool safe;
  };
  for (const Case& test :
       {Case{kSomebody, 0755, true}, Case{kSomebody, 0775, true}, Case{kSomebody, 01777, true},
        Case{kSomebody, 0777, false}, Case{0, 0777, true}, Case{0, 01777, true}}) {
    SetScratch(test.owner, test.mode);
    for (const std::string& path : {Run(), link}) {
      const Status status = CheckSafePlace(path);
      EXPECT_EQ(status.ok(), test.safe)
          << path << " " << test.owner << " " << std::oct << test.mode;
      if (status.ok()) continue;
      EXPECT_THAT(status,
                  IsError(ErrorKind::kConfig, Scratch() + "' belongs to user 4711", "mode 0777"));
    }
  }
}

TEST_F(SafePlaceTest, WarnsOfDoubtfulPaths) {
  EXPECT_EQ(RunFolderWarning(Run()), "");
  EXPECT_EQ(RunFolderWarning(Run() + "/new/folder"), "");
  ASSERT_EQ(::chmod(Scratch().c_str(), 0777), 0);
  EXPECT_THAT(RunFolderWarning(Run() + "/new"),
              AllOf(HasSubstr("'" + Scratch() + "' belongs"), HasSubstr("mode 0777: everybody")));
  for (const mode_t fine : {01777, 0775}) {
    ASSERT_EQ(::chmod(Scratch().c_str(), fine), 0);
    EXPECT_EQ(RunFolderWarning(Run()), "");
  }
  if (::geteuid() != 0) return;
  SetScratch(kSomebody, 0755);
  EXPECT_THAT(RunFolderWarning(Run()), HasSubstr("belongs to user 4711 and has mode 0755: its"));
  SetScratch(65'534, 0755);
  EXPECT_EQ(RunFolderWarning(Run()), "") << "of another user namespace";
}

TEST_F(SafePlaceTest, RefusesLinkOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a link of somebody else";
  const std::string link = dir_.path() + "/link";
  fs::create_symlink(Run(), link);
  ASSERT_EQ(::lchown(link.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
  EXPECT_THAT(CheckSafePlace(link), HasMessage(HasSubstr(link + "' is a link made by user 4711")));
}

// Written with a slash after it, or with more of the path after it, a link is still a link.
TEST_F(SafePlaceTest, RefusesLinkOfAnotherUserInPath) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a link of somebody else";
  const std::string link = dir_.path() + "/link";
  fs::create_symlink(Scratch(), link);
  fs::create_symlink("link/run", dir_.path() + "/own");
  ASSERT_EQ(::lchown(link.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
  for (const std::string& path :
       {link + "/", link + "/run", link + "//run/", Scratch() + "/../link/./run",
        dir_.path() + "/own", link + "/not-there-yet"}) {
    EXPECT_THAT(CheckSafePlace(path), IsError(ErrorKind::kConfig, "' is a link made by user 4711"))
        << path;
  }
}

TEST_F(SafePlaceTest, RequiresOwnershipOfFolderAndContent) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make folders of others";
  const auto give = [](const std::string& path, mode_t mode) {
    fs::create_directories(path);
    ASSERT_EQ(::lchown(path.c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  };
  EXPECT_TRUE(CheckSafeRunFolder(Run()).ok());
  for (const char* inside : {"/attempts", "/ckpt"}) {
    give(Run() + inside, 0755);
    EXPECT_THAT(CheckSafeRunFolder(Run()),
                HasMessage(HasSubstr(Run() + inside + "' belongs to user 4711")));
    fs::remove(Run() + inside);
    fs::create_symlink(Scratch(), Run() + inside);
    EXPECT_TRUE(CheckSafeRunFolder(Run()).ok()) << "the user's own link";
    ASSERT_EQ(::lchown((Run() + inside).c_str(), kSomebody, static_cast<gid_t>(-1)), 0);
    EXPECT_THAT(CheckSafeRunFolder(Run()), HasMessage(HasSubstr("a link made by user 4711")));
    fs::remove(Run() + inside);
  }
  give(Run(), 01777);
  EXPECT_THAT(CheckSafeRunFolder(Run()), HasMessage(HasSubstr("belongs to user 4711")));
}

TEST_F(SafePlaceTest, AcceptsMissingFolder) {
  EXPECT_TRUE(CheckSafePlace(dir_.path() + "/no/such").ok()) << "it will be made";
  const std::string file = dir_.Write("file", "");
  EXPECT_THAT(CheckSafePlace(file + "/attempts"),
              IsError(ErrorKind::kIo, StrCat("'", file, "' is a file, expected a folder")));
  fs::create_symlink("loop", dir_.path() + "/loop");
  EXPECT_THAT(CheckSafePlace(dir_.path() + "/loop"), HasKind(ErrorKind::kIo));
}

}  // namespace
}  // namespace gaccd
