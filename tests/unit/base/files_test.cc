#include "collectives/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string Path(const std::string& name) const { return temp_.Path(name); }
  [[nodiscard]] std::vector<std::string> Names() const { return *ListFolder(folder_, 100); }

  const TempFolder temp_;
  const std::string folder_ = temp_.path();
};

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_F(FilesTest, DurableFileAppearsAtomically) {
  {
    auto file = ValueOrThrow(DurableFile::Create(Path("a")));
    ASSERT_TRUE(file.Write(Bytes("half")).ok());
    EXPECT_FALSE(std::filesystem::exists(Path("a")));
  }
  EXPECT_THAT(Names(), ElementsAre());
  auto file = DurableFile::Create(Path("a"));
  ASSERT_TRUE(file->Write(Bytes("one ")).ok());
  ASSERT_TRUE(file->Write(Bytes("two")).ok());
  DurableFile moved = std::move(*file);
  ASSERT_TRUE(moved.Commit().ok());
  EXPECT_THAT(Names(), ElementsAre("a"));
  EXPECT_EQ(*ReadStart(Path("a"), 100), "one two");
}

TEST_F(FilesTest, ReplaceFileIsAtomic) {
  for (const bool durable : {false, true}) {
    ASSERT_TRUE(ReplaceFile(Path("a"), "first", durable).ok());
    ASSERT_TRUE(ReplaceFile(Path("a"), "second", durable).ok());
    EXPECT_EQ(*ReadStart(Path("a"), 3), "sec");
    EXPECT_THAT(Names(), ElementsAre("a"));
    EXPECT_THAT(ReplaceFile(Path("no/a"), "x", durable), IsError(ErrorKind::kIo, "No such file"));
  }
}

TEST_F(FilesTest, RefusesUnsafeLinks) {
  ASSERT_TRUE(ReplaceFile(Path("victim"), "keep", false).ok());
  ASSERT_EQ(::symlink("victim", Path("link").c_str()), 0);
  EXPECT_FALSE(OpenFile(Path("link"), O_WRONLY | O_TRUNC).ok());
  EXPECT_FALSE(InputFile::Open(Path("link"), Links::kRefuse).ok());
  EXPECT_TRUE(InputFile::Open(Path("link"), Links::kFollow).ok());
}

// Somebody else put files there under the names that can be guessed from a process number.
TEST_F(FilesTest, TemporaryFileIsAlwaysNew) {
  const std::string guessed = Path("a") + ".tmp-" + std::to_string(::getpid());
  for (const bool durable : {false, true}) {
    ASSERT_TRUE(CreateFileOnce(guessed, "", 0666).ok());
    ASSERT_EQ(::chmod(guessed.c_str(), 0666), 0);
    ASSERT_TRUE(ReplaceFile(Path("a"), "text", durable).ok());
    struct stat info {};
    ASSERT_EQ(::stat(Path("a").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_EQ(*ReadStart(guessed, 9), "");
    std::filesystem::remove(guessed);
  }
  std::vector<TemporaryFile> all;
  for (int i = 0; i < 50; ++i) {
    auto one = ValueOrThrow(CreateTemporary(Path("b")));
    all.push_back(std::move(one));
  }
  EXPECT_EQ(Names().size(), 51u) << "each its own";
}

TEST_F(FilesTest, InputFileReadsExactSize) {
  ASSERT_TRUE(ReplaceFile(Path("a"), "0123456789", false).ok());
  const auto file = ValueOrThrow(InputFile::Open(Path("a")));
  EXPECT_EQ(file.size(), 10u);
  std::string text(4, ' ');
  ASSERT_TRUE(file.ReadAt(3, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "3456");
  ASSERT_EQ(::truncate(Path("a").c_str(), 5), 0);
  EXPECT_THAT(file.ReadAt(3, std::as_writable_bytes(std::span(text))),
              HasMessage(HasSubstr("found its end at 5")));
}

// However much is asked for at once.
TEST_F(FilesTest, InputFileTicksWhileReading) {
  ASSERT_TRUE(ReplaceFile(Path("a"), "", false).ok());
  ASSERT_EQ(::truncate(Path("a").c_str(), 2 * Ticks::kBytes), 0);
  const auto file = ValueOrThrow(InputFile::Open(Path("a")));
  std::vector<std::byte> bytes(2 * Ticks::kBytes);
  int calls = 0;
  Ticks ticks([&] {
    ++calls;
    return Status::Ok();
  });
  ASSERT_OK(file.ReadAt(0, bytes, &ticks));
  EXPECT_EQ(calls, 2);
  for (int i = 0; i < 3; ++i) ASSERT_OK(file.ReadAt(0, std::span(bytes).first(9), &ticks));
  EXPECT_EQ(calls, 2) << "of small files only some";
  Ticks gone([] { return Status(ErrorKind::kUnavailable, "gone"); });
  EXPECT_THAT(file.ReadAt(0, std::span(bytes).first(1), &gone), HasKind(ErrorKind::kUnavailable));
}

TEST_F(FilesTest, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(InputFile::Open(Path("fifo")), HasMessage(HasSubstr("a FIFO")));
  EXPECT_THAT(InputFile::Open(folder_), HasMessage(HasSubstr("a directory")));
  // Nobody writes into it, nobody reads from it: neither may wait for that.
  EXPECT_THAT(ReadStart(Path("fifo"), 9), HasMessage(HasSubstr("a FIFO")));
  EXPECT_THAT(OpenFile(Path("fifo"), O_WRONLY | O_APPEND | O_CREAT),
              HasMessage(HasSubstr("No such device")));
  EXPECT_THAT(ReadSmallFile(Path("no"), ErrorKind::kConfig),
              HasMessage(HasSubstr("cannot read '" + Path("no") + "': No such file")));
}

TEST_F(FilesTest, RefusesFilesAndFoldersOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  ASSERT_TRUE(ReplaceFile(Path("a"), "text", false).ok());
  EXPECT_TRUE(InputFile::Open(Path("a"), Links::kRefuse).ok());
  EXPECT_TRUE(OpenOwnFolder(folder_).ok());
  ASSERT_EQ(::chown(Path("a").c_str(), 4711, 4711), 0);
  ASSERT_EQ(::chown(folder_.c_str(), 4711, 4711), 0);
  EXPECT_THAT(InputFile::Open(Path("a"), Links::kRefuse),
              HasMessage(HasSubstr("belongs to user 4711, expected user 0")));
  EXPECT_TRUE(InputFile::Open(Path("a")).ok()) << "what a user names himself";
  EXPECT_THAT(OpenOwnFolder(folder_), HasMessage(HasSubstr("belongs to user 4711")));
}

TEST_F(FilesTest, BoundsSmallFiles) {
  ASSERT_TRUE(ReplaceFile(Path("most"), std::string(kMaxTextBytes, 'x'), false).ok());
  EXPECT_EQ(ReadSmallFile(Path("most"), ErrorKind::kConfig)->size(), kMaxTextBytes);
  ASSERT_TRUE(ReplaceFile(Path("more"), std::string(kMaxTextBytes + 1, 'x'), false).ok());
  EXPECT_THAT(ReadSmallFile(Path("more"), ErrorKind::kConfig),
              IsError(ErrorKind::kConfig, "found 1048577"));
}

TEST_F(FilesTest, CreatesAndListsFoldersWithinBound) {
  ASSERT_TRUE(MakeFolders(Path("x/y/z"), 0700).ok());
  struct stat info {};
  ASSERT_EQ(::stat(Path("x/y/z").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(MakeFolders(Path("x/y/z")).ok()) << "an existing folder is fine";
  ASSERT_TRUE(ReplaceFile(Path("x/b"), "", false).ok());
  EXPECT_THAT(*ListFolder(Path("x"), 2), ElementsAre("b", "y"));
  EXPECT_THAT(ListFolder(Path("x"), 1), HasKind(ErrorKind::kData));
  EXPECT_THAT(ListFolder(Path("none"), 1), HasKind(ErrorKind::kIo));
  EXPECT_THAT(MakeFolders(Path("x/b/c")), HasMessage(HasSubstr("Not a directory")));
  EXPECT_THAT(MakeFolders("/sys/none/a/b").message(),
              testing::AllOf(HasSubstr("'/sys/none/a/b'"), testing::Not(HasSubstr("No such file"))))
      << "the cause is that of the first folder";
  EXPECT_EQ(ParentFolder("a/b/c"), "a/b");
  EXPECT_EQ(ParentFolder("/c"), "/");
  EXPECT_EQ(ParentFolder("c"), ".");
}

TEST_F(FilesTest, OneOfManyWritersCreatesFile) {
  std::atomic<int> made{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      const auto there =
          CreateFileOnce(Path("once"), std::string(1000, static_cast<char>('a' + i)));
      ASSERT_TRUE(there.ok()) << there.status().message();
      if (!*there) ++made;
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(made, 1);
  EXPECT_THAT(Names(), ElementsAre("once"));
  EXPECT_EQ(ReadStart(Path("once"), 2000)->size(), 1000u);
  EXPECT_THAT(CreateFileOnce(Path("no/once"), ""), HasKind(ErrorKind::kIo));
}

TEST_F(FilesTest, FilesAreReadableByOwnerOnly) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(ReplaceFile(Path("a"), "", false).ok());
  ASSERT_TRUE(ReplaceFile(Path("b"), "", true, kGroupMayRead.file).ok());
  ASSERT_TRUE(CreateFileOnce(Path("c"), "").ok());
  ASSERT_TRUE(MakeFolders(Path("d")).ok());
  ::umask(before);
  const unsigned expected[] = {0600, 0640, 0600, 0700};
  for (int i = 0; i < 4; ++i) {
    struct stat info {};
    const std::string name(1, static_cast<char>('a' + i));
    ASSERT_EQ(::stat(Path(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, expected[i]) << name;
  }
}

TEST_F(FilesTest, FullDeviceIsAnError) {
  const auto full = ValueOrThrow(OpenFile("/dev/full", O_WRONLY));
  EXPECT_THAT(WriteAll(full.get(), "x", "/dev/full"), HasMessage(HasSubstr("No space left")));
}

}  // namespace
}  // namespace gaccd
