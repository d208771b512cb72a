// Figures that continue from those of the export before are those of all events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>

#include "collectives/base/hash.h"
#include "daemon/inspect/export/prometheus.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class PrometheusStateTest : public testing::Test {
 protected:
  static constexpr int kUpdates = 1500;

  void SetUp() override {
    run_.Event(kFirst, 0, "run_start", R"(,"flops_per_sample":3)");
    AddSteps(kFirst, 1, kUpdates);
    ASSERT_EQ(Continued(), Fresh());
  }
  void AddSteps(const std::string& attempt, int from, int to) {
    for (int step = from; step <= to; ++step) {
      run_.Event(attempt, 1 + step / 10, "step",
                 StrCat(R"(,"step":)", step, R"(,"samples":48,"loss":)", 1.0 / step,
                        R"(,"loss_finite":true,"grad_finite":true,"unit":"tokens","divisor":100,)",
                        R"("dur_s":0.7,"data_s":0.1,"fwd_bwd_s":0.3,"straggler_host":"n3")"));
    }
  }
  static std::string ReadPrometheusText(const Result<RunFigures>& figures) {
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return PrometheusText(std::vector{RunMetrics{.run = "r50", .figures = *figures}});
  }
  std::string Fresh() { return ReadPrometheusText(PrometheusState().ReadFigures(run_.path())); }
  std::string Continued() {
    problem_.clear();
    PrometheusState state = PrometheusState::Read(file_, &problem_);
    std::string text = ReadPrometheusText(state.ReadFigures(run_.path()));
    EXPECT_TRUE(state.Write(file_).ok());
    return text;
  }
  void Overwrite(const std::string& attempt, std::size_t offset, std::string_view text) {
    std::fstream file(run_.Path(StrCat("attempts/", attempt, "/events.jsonl")),
                      std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << text;
  }
  static std::string TextIn(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  [[nodiscard]] std::string Events(const std::string& attempt) const {
    return TextIn(run_.Path(StrCat("attempts/", attempt, "/events.jsonl")));
  }

  const std::string kFirst = "000-812";
  const std::string kSecond = "001-812";
  RunFiles run_;
  const std::string file_ = run_.Path("gaccd.prom.state");
  std::string problem_;
};

TEST_F(PrometheusStateTest, DoesNotRereadEvents) {
  const std::string before = Continued();
  const std::string events = Events(kFirst);
  Overwrite(kFirst, events.find(R"("samples":48)", events.size() / 2), R"("samples":99)");
  EXPECT_EQ(Continued(), before);
  EXPECT_NE(Fresh(), before);
}

TEST_F(PrometheusStateTest, FiguresEqualThoseOfAllEvents) {
  AddSteps(kFirst, kUpdates + 1, kUpdates + 3);
  for (const int step : {kUpdates - 20, kUpdates + 3}) {
    run_.Event(kFirst, 160, "eval",
               StrCat(R"(,"step":)", step, R"(,"metric":"mae","value":)", step));
  }
  EXPECT_EQ(Continued(), Fresh());
  run_.Append(StrCat("attempts/", kFirst, "/events.jsonl"), R"({"v":1,"ts":")");  // cut off
  EXPECT_EQ(Continued(), Fresh());
  run_.Crash(kFirst, 200, 5, R"(,"exit":74)");
  EXPECT_EQ(Continued(), Fresh());
  run_.Event(kSecond, 300, "run_start");
  run_.Event(kSecond, 301, "resume", StrCat(R"(,"step":)", kUpdates - 10, R"(,"dur_s":1.5)"));
  const std::string resumed = Continued();
  EXPECT_EQ(resumed, Fresh());
  EXPECT_THAT(resumed, HasSubstr(StrCat("metric=\"mae\"} ", kUpdates - 20, "\n")));
  AddSteps(kSecond, kUpdates - 9, kUpdates + 20);
  EXPECT_EQ(Continued(), Fresh());
  run_.Crash(kFirst, 201, 6, R"(,"exit":69)");  // of the attempt before
  EXPECT_EQ(Continued(), Fresh());
  run_.Append(StrCat("attempts/", kSecond, "/verdict.json"), RunFiles::Line(400, "verdict", 1));
  EXPECT_EQ(Continued(), Fresh());
  run_.Event("002-812", 500, "resume", R"(,"step":3)");  // after all that the state has
  AddSteps("002-812", 4, 8);
  EXPECT_EQ(Continued(), Fresh());
  EXPECT_EQ(problem_, "");
}

TEST_F(PrometheusStateTest, KeepsNonFiniteEvaluation) {
  run_.Event(kFirst, 200, "eval", R"(,"step":1500,"metric":"loss","value":1.25,"dur_s":0.5)");
  run_.Event(kFirst, 210, "eval", R"(,"step":1500,"metric":"loss","value":null,"dur_s":0.5)");
  const std::string before = Continued();
  EXPECT_THAT(before, HasSubstr("metric=\"loss\"} nan\n"));
  EXPECT_EQ(before, Fresh());
  const std::string events = Events(kFirst);
  Overwrite(kFirst, events.find(R"("samples":48)", events.size() / 2), R"("samples":99)");
  EXPECT_EQ(Continued(), before) << "null in the file is such a value, not damage";
  EXPECT_NE(Fresh(), before);
}

TEST_F(PrometheusStateTest, RereadsTruncatedOrReplacedFile) {
  const std::string path = run_.Path(StrCat("attempts/", kFirst, "/events.jsonl"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(Continued(), Fresh());
  std::filesystem::remove(path);
  AddSteps(kFirst, 1, 2 * kUpdates);
  EXPECT_EQ(Continued(), Fresh());
  std::filesystem::remove_all(run_.Path("attempts"));
  run_.Event(kSecond, 0, "run_start");
  AddSteps(kSecond, 1, 3);
  EXPECT_EQ(Continued(), Fresh());
}

TEST_F(PrometheusStateTest, IgnoresStateOfAnotherBuild) {
  std::string rest = TextIn(file_).substr(2 * sizeof(Sha256Digest) + 1);
  const std::size_t build = rest.find(R"("build":")");
  ASSERT_NE(build, std::string::npos);
  rest.insert(build + 9, "9.9");
  Sha256 sha;
  sha.Update(std::as_bytes(std::span(rest)));
  std::ofstream(file_) << Hex(sha.Finish()) << "\n" << rest;
  Overwrite(kFirst, Events(kFirst).find(R"("samples":48)", 50'000), R"("samples":99)");
  EXPECT_EQ(Continued(), Fresh());
  EXPECT_EQ(problem_, "");
}

// As those of another user: the sums would lack an attempt, and nothing said so.
TEST_F(PrometheusStateTest, NamesUnreadableEvents) {
  std::filesystem::create_directories(run_.Path("attempts/001-812/events.jsonl"));
  testing::internal::CaptureStderr();
  (void)Continued();
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(HasSubstr("001-812/events.jsonl"), HasSubstr("the metrics lack the updates")));
}

TEST_F(PrometheusStateTest, ReportsDamagedState) {
  const auto size = std::filesystem::file_size(file_);
  EXPECT_LT(size, 64'000) << "it does not grow with the run";
  std::filesystem::resize_file(file_, size - 100);
  EXPECT_EQ(Continued(), Fresh());
  EXPECT_THAT(problem_, HasSubstr("gaccd.prom.state"));
  for (const char* text : {"", "\n", "x", "null", "{}\n{}"}) {
    std::ofstream(file_) << text;
    EXPECT_EQ(Continued(), Fresh()) << text;
    EXPECT_THAT(problem_, HasSubstr("gaccd.prom.state")) << text;
  }
}

}  // namespace
}  // namespace gaccd
