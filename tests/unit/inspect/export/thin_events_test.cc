// Events with fewer lines say the same sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/inspect/export/prometheus.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/logs_command.h"
#include "daemon/rundir/folder_owner.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class ThinEventsTest : public testing::Test {
 protected:
  // Attempt 0: updates 1 to 300, with a save, a crash and a loss that is not finite. Attempt 1
  // continues after 245.
  void SetUp() override {
    run_.Event("000-812", 0, "run_start", R"(,"flops_per_sample":3)");
    AddSteps("000-812", 1, 137);
    run_.Event("000-812", 14, "save", R"(,"step":137,"ok":true,"bytes":1,"stall_s":0.5,"dur_s":1)");
    AddSteps("000-812", 138, 300);
    run_.Crash("000-812", 40, 5, R"(,"exit":74)");
    run_.Event("001-812", 50, "resume", R"(,"step":245,"dur_s":1.5)");
    AddSteps("001-812", 246, 322, 40);
    run_.Event("001-812", 90, "eval", R"(,"step":322,"metric":"loss","value":1.25,"dur_s":0.5)");
  }
  // Times are sums of powers of two: any order gives the same sum. What was done again takes the
  // same time each, as only the mean is known.
  void AddSteps(const std::string& attempt, int from, int to, int later_s = 0) {
    for (int step = from; step <= to; ++step) {
      const bool finite = step != 171;
      run_.Event(attempt, 1 + later_s + step / 10, "step",
                 StrCat(R"(,"step":)", step, R"(,"samples":48,"target":48,"loss":)",
                        finite ? "1.5" : "null", R"(,"loss_finite":)", finite ? "true" : "false",
                        R"(,"grad_finite":true,"skipped":false,"unit":"tokens","divisor":100,)",
                        R"("dur_s":)", (step > 245 ? 1 : step % 3) + 0.25,
                        R"(,"data_s":0.125,"fwd_bwd_s":0.0625,)",
                        R"("wait_s":0.03125,"straggler_host":"n)", step % 2, "\""));
    }
  }
  // All figures, and the updates that have lines of their own.
  std::string Figures() {
    auto stream = EventStream::Open(run_.path());
    FigureSum sum;
    Event event;
    steps_.clear();
    while (stream->Next(&event)) {
      sum.Add(event);
      if (event.name == "step") steps_.push_back(*event.Whole("step"));
    }
    notes_ = stream->notes();
    return PrometheusText(std::vector{
        RunMetrics{.run = "r", .figures = std::move(sum).Finish(stream->attempts().size())}});
  }
  static std::string TextIn(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  RunFiles run_;
  std::vector<std::int64_t> steps_;
  std::vector<std::string> notes_;
};

TEST_F(ThinEventsTest, KeepsFigures) {
  const std::string before = Figures();
  const auto done = ValueOrThrow(ThinEvents(run_.path(), 100));
  EXPECT_EQ(Figures(), before);
  EXPECT_THAT(steps_, ElementsAre(1, 100, 171, 200, 245, 300, 246, 300, 322));
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_EQ(done.updates, 377);
  EXPECT_EQ(done.kept_updates, 9);
  EXPECT_LT(done.bytes, done.bytes_before / 5);
  const std::string events = TextIn(run_.Path("attempts/000-812/events.jsonl"));
  EXPECT_THAT(events, HasSubstr(R"("ev":"save")"));
  ASSERT_TRUE(ThinEvents(run_.path(), 1000).ok());
  EXPECT_EQ(Figures(), before);
  EXPECT_THAT(steps_, ElementsAre(1, 171, 245, 300, 246, 322));
}

TEST_F(ThinEventsTest, KeepsLinesThatAreNoEvents) {
  const std::string name = "attempts/001-812/events.jsonl";
  run_.Append(name, "damaged\n{\"v\":1,\"ts");
  std::filesystem::permissions(run_.Path(name), std::filesystem::perms(0640));
  ASSERT_TRUE(ThinEvents(run_.path(), 100).ok());
  EXPECT_TRUE(TextIn(run_.Path(name)).ends_with("}\ndamaged\n{\"v\":1,\"ts"));
  EXPECT_EQ(std::filesystem::status(run_.Path(name)).permissions(), std::filesystem::perms(0640));
}

TEST_F(ThinEventsTest, LineWithManyHostsIsShort) {
  for (int step = 323; step <= 900; ++step) {
    run_.Event(
        "001-812", 91, "step",
        StrCat(R"(,"step":)", step, R"(,"samples":1,"target":1,"loss_finite":true,)",
               R"("grad_finite":true,"dur_s":1,"straggler_host":"node-with-a-name-)", step, "\""));
  }
  const std::string before = Figures();
  ASSERT_TRUE(ThinEvents(run_.path(), 1000).ok());
  EXPECT_EQ(Figures(), before);
  std::istringstream lines(TextIn(run_.Path("attempts/001-812/events.jsonl")));
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 4096);
}

TEST_F(ThinEventsTest, RefusesLiveRunAndKeepsFiles) {
  const std::string name = run_.Path("attempts/001-812/events.jsonl");
  const std::string before = TextIn(name);
  {
    const auto owner = ValueOrThrow(FolderOwner::Acquire(run_.path(), MakeOwnerName("812", 1)));
    EXPECT_THAT(ThinEvents(run_.path(), 100).status(), IsError(ErrorKind::kConfig, "job 812"));
  }
  EXPECT_EQ(TextIn(name), before);
  EXPECT_TRUE(ThinEvents(run_.path(), 100).ok());
  EXPECT_THAT(ThinEvents(run_.Path("attempts"), 100).status(),
              IsError(ErrorKind::kUsage, "run folder"));
}

}  // namespace
}  // namespace gaccd
