// Drawings in the terminal.
#include "daemon/inspect/report/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t Characters(const std::string& utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (c & 0xC0) != 0x80; }));
}

Curve Falling() {
  Curve curve;
  for (std::int64_t step = 1; step <= 100; ++step)
    curve.Add(step, 10 - 0.05 * static_cast<double>(step));
  curve.BeginPiece();
  for (std::int64_t step = 51; step <= 200; ++step)
    curve.Add(step, 10 - 0.05 * static_cast<double>(step));
  return curve;
}

TEST(PlotTest, AsciiSpansFromTopToBottom) {
  const std::string text = PlotText("loss", Falling(), {.columns = 60, .rows = 10, .utf8 = false});
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= 32 && c < 127); }));
  const auto lines = SplitLines(text);
  ASSERT_EQ(lines.size(), 1 + 10 + 2);
  EXPECT_EQ(lines[0], "loss: last 0, from 0 to 9.95");
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60);
  // Room is left above the largest and below the smallest value, but for 0.
  const auto top = std::ranges::find_if(lines.begin() + 1, lines.end(), [](const auto& line) {
    return line.find('*') != std::string::npos;
  });
  EXPECT_EQ(top->find('*'), 12);
  EXPECT_EQ(lines[10].back(), '*');
  EXPECT_EQ(lines[10].size(), 60);
  EXPECT_EQ(lines[11].find('^'), 12 + std::lround(50.0 / 199 * 47)) << "where attempt 1 begins";
  EXPECT_TRUE(lines[12].starts_with("            1 "));
  EXPECT_TRUE(lines[12].ends_with(" 200"));
}

TEST(PlotTest, DoesNotDrawLostUpdates) {
  Curve curve = Falling();
  curve.RewindTo(20);
  curve.BeginPiece();
  curve.Add(21, 5);
  const auto lines =
      SplitLines(PlotText("loss", curve, {.columns = 60, .rows = 10, .utf8 = false}));
  EXPECT_EQ(lines.front(), "loss: last 5, from 5 to 9.95");
  EXPECT_TRUE(lines.back().ends_with(" 21"));
}

TEST(PlotTest, BrailleHasEightDotsPerCharacter) {
  Curve curve;
  curve.Add(1, 1);
  curve.Add(2, 1.0625);
  const std::string text = PlotText("loss", curve, {.columns = 40, .rows = 4});
  for (const std::string& line : SplitLines(text)) EXPECT_LE(Characters(line), 40) << line;
  EXPECT_THAT(text, HasSubstr("│"));
  const auto rising = SplitLines(text);
  EXPECT_THAT(rising[1], testing::EndsWith("⠒")) << "the second dots of both columns";
  const auto steep = SplitLines(PlotText("loss", curve, {.columns = 40, .rows = 40}));
  EXPECT_THAT(steep[3], testing::EndsWith("⡰"))
      << "the lowest of the left column, then the middle two";
}

std::string DrawPlot(const std::vector<double>& values) {
  Curve curve;
  for (std::size_t i = 0; i < values.size(); ++i) {
    curve.Add(static_cast<std::int64_t>(i), values[i]);
  }
  return PlotText("loss", curve, {.utf8 = false});
}

TEST(PlotTest, UsesLogarithmForWideRange) {
  EXPECT_THAT(DrawPlot({0.01, 10, 0.5}), HasSubstr("from 0.01 to 10, logarithmic"));
  EXPECT_THAT(DrawPlot({0.1, 2}), Not(HasSubstr("logarithmic")));
  EXPECT_THAT(DrawPlot({-1, 100}), Not(HasSubstr("logarithmic")));
}

TEST(PlotTest, DrawsUnusualValues) {
  for (const std::vector<double>& values :
       {std::vector<double>{0}, {5}, {-3, -3}, {1e308, -1e308}, {1e-320, 2e-320}, {1e-9, 1e300}}) {
    const auto lines = SplitLines(DrawPlot(values));
    EXPECT_THAT(DrawPlot(values), Not(HasSubstr("inf")));
    ASSERT_EQ(lines.size(), 1 + 13 + 1);
    EXPECT_TRUE(std::ranges::any_of(
        lines, [](const std::string& line) { return line.find('*') != std::string::npos; }));
  }
}

TEST(PlotTest, ReportHasLossAndMetrics) {
  ReportData story;
  EXPECT_EQ(PlotText(story, {}), "");
  story.loss = Falling();
  story.evals["accuracy\x1b[2J"].Add(100, 0.5);
  const std::string text = PlotText(story, {});
  EXPECT_THAT(text, HasSubstr("training loss: last 0"));
  EXPECT_THAT(text, HasSubstr("eval accuracy\\x1b[2J: last 0.5"));
  ASSERT_TRUE(ParseEvent(RunFiles::Line(1, "step", 1, R"(,"step":201,"loss":null,"divisor":8)"),
                         &story.figures.step.emplace()));
  EXPECT_THAT(PlotText(story, {}), HasSubstr("training loss, now not finite: last 0"));
}

}  // namespace
}  // namespace gaccd
