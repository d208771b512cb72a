// Charts over updates as inline SVG. The SVG is stretched to the page, labels are HTML: both are
// sharp and readable at any width.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/report/curve.h"
#include "daemon/report/html.h"
#include "daemon/report/scale.h"

namespace gaccd {

// A line; its exact values are in data-x and data-y, for programs that read the page.
struct ChartLine {
  std::string name;   // shown at the pointer, and data-curve
  std::string style;  // a class of the style: "c0" to "c7"
  const Curve* curve = nullptr;
  bool dots = false;                    // each point is shown: there are few
  std::optional<Bilingual> words = {};  // in the legend; else the name
};

// Where an attempt begins.
struct ChartMark {
  std::int64_t step = 0;
  std::string label;
};

// Updates first..last, the x axis.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 2;
};

struct LineChart {
  Bilingual title;
  std::string subject;  // after the title: a metric; may be empty
  std::vector<ChartLine> lines;
  StepRange steps;
  std::vector<ChartMark> marks;
  bool may_be_logarithmic = false;
};

// Nothing without a point. Updates that a later attempt did again are faint.
void WriteLineChart(const LineChart& chart, Html& out);

// Its lines as SVG, on a scale of the caller.
[[nodiscard]] std::string LinePaths(const LineChart& chart, const AxisScale& y);

// What every chart has: axes with labels, marks, and `content`, SVG in 0..1000 by 0..300.
struct ChartFrame {
  StepRange steps;
  AxisScale y;
  std::vector<ChartMark> marks;
};
void WriteChartFrame(const ChartFrame& frame, const std::string& content, Html& out);

inline constexpr double kChartWidth = 1000;
inline constexpr double kChartHeight = 300;
// In the coordinates of `content`, with one decimal; what is outside of the scale is at its edge.
[[nodiscard]] std::string ChartX(const StepRange& steps, double step);
[[nodiscard]] std::string ChartY(const AxisScale& scale, double value);

}  // namespace gaccd
