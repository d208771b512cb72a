#include "daemon/rundir/status_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT
using std::chrono::milliseconds;

TEST(StatusFileTest, IsRefreshedWithoutCalls) {
  const TempFolder dir;
  const std::string path = dir.path() + "/STATUS.json";
  std::atomic<int> beats{0};
  auto file = ValueOrThrow(StatusFile::Start(
      path, RunStatus{},
      [&](RunStatus&) {
        ++beats;
        return Status::Ok();
      },
      milliseconds(5)));
  EXPECT_EQ(Text(Parse(Content(path)), "state"), "starting");
  file->Update([](RunStatus& status) { status.state = "running"; });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Text(Parse(Content(path)), "state") != "running") {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(beats, 1);
  file->Update([](RunStatus& status) { status.state = "done"; });
  EXPECT_TRUE(file->Finish().ok());
  EXPECT_EQ(Text(Parse(Content(path)), "state"), "done");
}

TEST(StatusFileTest, IsWrittenEarlyOnRequest) {
  const TempFolder dir;
  const std::string path = dir.path() + "/STATUS.json";
  auto file = ValueOrThrow(StatusFile::Start(
      path, RunStatus{}, [](RunStatus&) { return Status::Ok(); }, std::chrono::hours(1)));
  file->Update([](RunStatus& status) { status.state = "running"; });
  file->WriteSoon();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Text(Parse(Content(path)), "state") != "running") {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// A reader that opens the file at any moment gets a whole object.
TEST(StatusFileTest, ReadersNeverSeeHalfAFile) {
  const TempFolder dir;
  const std::string path = dir.path() + "/STATUS.json";
  auto file = ValueOrThrow(StatusFile::Start(
      path, RunStatus{}, [](RunStatus&) { return Status::Ok(); }, milliseconds(0)));
  for (int i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    EXPECT_THAT(Content(path), testing::EndsWith("}\n"));
  }
  EXPECT_TRUE(file->Finish().ok());
  int others = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    others += entry.path() != path ? 1 : 0;
  }
  EXPECT_EQ(others, 0) << "temporary files were left";
}

TEST(StatusFileTest, MissingFolderIsCountedNotFatal) {
  const TempFolder dir;
  const std::string folder = dir.path() + "/run";
  std::filesystem::create_directory(folder);
  auto file = ValueOrThrow(StatusFile::Start(
      folder + "/STATUS.json", RunStatus{}, [](RunStatus&) { return Status::Ok(); },
      milliseconds(1)));
  // To remove it would race with the files that are written into it.
  std::filesystem::rename(folder, dir.path() + "/away");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (file->first_failure().ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_THAT(file->first_failure(), HasKind(ErrorKind::kIo));
  EXPECT_THAT(file->first_failure(), HasMessage(::testing::HasSubstr(folder)));
  EXPECT_FALSE(file->Finish().ok());
}

TEST(StatusFileTest, LastWriteCountsEarlierFailures) {
  const TempFolder dir;
  const std::string folder = dir.path() + "/run";
  const std::string away = dir.path() + "/away";
  std::filesystem::create_directory(folder);
  auto file = ValueOrThrow(StatusFile::Start(
      folder + "/STATUS.json", RunStatus{}, [](RunStatus&) { return Status::Ok(); },
      milliseconds(1)));
  std::filesystem::rename(folder, away);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (file->first_failure().ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::filesystem::rename(away, folder);
  file->Update([](RunStatus& status) { status.write_errors = 100; });  // of the caller
  EXPECT_OK(file->Finish());
  EXPECT_GT(Number(Parse(Content(folder + "/STATUS.json")), "write_errors"), 100);
}

TEST(StatusFileTest, DoesNotWriteAfterLosingOwnership) {
  const TempFolder dir;
  const std::string path = dir.path() + "/STATUS.json";
  auto file = ValueOrThrow(StatusFile::Start(
      path, RunStatus{}, [](RunStatus&) { return Status(ErrorKind::kConfig, "another folder"); },
      milliseconds(1)));
  file->Update([](RunStatus& status) { status.state = "running"; });
  while (file->first_failure().ok()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_THAT(file->Finish(), HasKind(ErrorKind::kConfig));
  EXPECT_EQ(Text(Parse(Content(path)), "state"), "starting");
}

TEST(StatusFileTest, StartFailsIfUnwritable) {
  const auto file = StatusFile::Start(
      "/proc/STATUS.json", RunStatus{}, [](RunStatus&) { return Status::Ok(); }, milliseconds(1));
  EXPECT_THAT(file, HasKind(ErrorKind::kIo));
}

}  // namespace
}  // namespace gaccd
