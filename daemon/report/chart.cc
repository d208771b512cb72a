#include "daemon/report/chart.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <span>

#include "collectives/base/strings.h"
#include "daemon/export/number_text.h"
#include "daemon/report/format_number.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxLabels = 12;  // of marks

std::string Decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// One update is in the middle.
double Share(const StepRange& steps, double step) {
  const auto first = static_cast<double>(steps.first);
  if (steps.first == steps.last) return step - first + 0.5;
  return (step - first) / (static_cast<double>(steps.last) - first);
}

std::vector<double> StepTicks(const StepRange& steps) {
  const auto first = static_cast<double>(steps.first);
  if (steps.first == steps.last) return {first};
  return Ticks({first, static_cast<double>(steps.last)}, 6);
}

// The first update of the later pieces of each: updates from there on were repeated.
std::vector<std::int64_t> DoneAgainFrom(const std::vector<CurvePiece>& pieces) {
  std::vector<std::int64_t> from(pieces.size(), std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = pieces.size(); i-- > 1;) {
    from[i - 1] = std::min(from[i], pieces[i].front().step);
  }
  return from;
}

void WritePath(const LineChart& chart, const ChartLine& line, const AxisScale& y,
               std::span<const CurvePoint> points, bool done_again, std::string* svg) {
  if (points.empty()) return;
  const bool dots = line.dots || points.size() == 1;  // a line of one point is not seen
  std::string path;
  std::string steps;
  std::string values;
  for (const CurvePoint& point : points) {
    const bool moves = path.empty() || dots;
    path += StrCat(moves ? "M" : "L", ChartX(chart.steps, static_cast<double>(point.step)), " ",
                   ChartY(y, point.value), dots ? "h0" : "");
    const char* space = steps.empty() ? "" : " ";
    steps.append(space) += std::to_string(point.step);
    values.append(space) += NumberText(point.value);
  }
  *svg += StrCat("<path class='line ", line.style, done_again ? " again" : "", dots ? " dots" : "",
                 "' data-curve='", EscapeHtml(line.name), "' data-x='", steps, "' data-y='", values,
                 "' d='", path, "'/>\n");
}

void WriteLine(const LineChart& chart, const ChartLine& line, const AxisScale& y,
               std::string* svg) {
  const std::vector<CurvePiece> pieces = line.curve->Pieces();
  const std::vector<std::int64_t> again_from = DoneAgainFrom(pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::span<const CurvePoint> points(pieces[i]);
    const auto split = static_cast<std::size_t>(
        std::ranges::lower_bound(points, again_from[i], {}, &CurvePoint::step) - points.begin());
    WritePath(chart, line, y, points.subspan(split), true, svg);
    WritePath(chart, line, y, points.first(split), false, svg);
  }
}

void WriteLegend(const LineChart& chart, Html& out) {
  if (chart.lines.size() < 2) return;
  out << "<p class=legend>";
  for (const ChartLine& line : chart.lines) {
    out << "<span><i class=" << line.style << "></i>";
    (line.words ? out.Say(*line.words) : out.Text(line.name)) << "</span>";
  }
  out << "</p>";
}

}  // namespace

std::string ChartX(const StepRange& steps, double step) {
  return Decimal(kChartWidth * std::clamp(Share(steps, step), 0.0, 1.0));
}

std::string ChartY(const AxisScale& scale, double value) {
  return Decimal(kChartHeight * (1 - std::clamp(scale.At(value), 0.0, 1.0)));
}

std::string LinePaths(const LineChart& chart, const AxisScale& y) {
  std::string svg;
  for (const ChartLine& line : chart.lines) WriteLine(chart, line, y, &svg);
  return svg;
}

void WriteChartFrame(const ChartFrame& frame, const std::string& content, Html& out) {
  std::string grid;
  std::string labels;
  for (const double tick : Ticks(frame.y, 5)) {
    const std::string y = ChartY(frame.y, tick);
    grid += StrCat("M0 ", y, "H1000");
    labels += StrCat("<span class=y style='top:", Decimal(100 * (1 - frame.y.At(tick))), "%'>",
                     FormatNumber(tick), "</span>");
  }
  for (const double tick : StepTicks(frame.steps)) {
    if (tick != static_cast<double>(static_cast<std::int64_t>(tick))) continue;
    labels += StrCat("<span class=x style='left:", Decimal(100 * Share(frame.steps, tick)), "%'>",
                     FormatCount(static_cast<std::int64_t>(tick)), "</span>");
  }
  std::string marks;
  for (std::size_t i = 0; i < frame.marks.size(); ++i) {
    const auto step = static_cast<double>(frame.marks[i].step);
    marks += StrCat("M", ChartX(frame.steps, step), " 0V300");
    if (i >= kMaxLabels) continue;
    labels += StrCat("<span class=mark style='left:", Decimal(100 * Share(frame.steps, step)),
                     "%'>", EscapeHtml(frame.marks[i].label), "</span>");
  }
  out << "<div class=chart><div class=plot data-first=" << std::to_string(frame.steps.first)
      << " data-last=" << std::to_string(frame.steps.last)
      << "><svg viewBox='0 0 1000 300' preserveAspectRatio=none aria-hidden=true>"
      << "<path class=grid d='" << grid << "'/>" << content << "<path class=begin d='" << marks
      << "'/></svg>" << labels << "</div></div>\n";
}

void WriteLineChart(const LineChart& chart, Html& out) {
  std::vector<double> values;
  for (const ChartLine& line : chart.lines) {
    for (const CurvePiece& piece : line.curve->Pieces()) {
      for (const CurvePoint& point : piece) values.push_back(point.value);
    }
  }
  if (values.empty()) return;
  const AxisScale y = ScaleFor(values, chart.may_be_logarithmic);
  (out << "<figure><figcaption>").Say(chart.title).Text(chart.subject) << "</figcaption>";
  WriteLegend(chart, out);
  WriteChartFrame({.steps = chart.steps, .y = y, .marks = chart.marks}, LinePaths(chart, y), out);
  out << "</figure>\n";
}

}  // namespace gaccd
