// `gaccd plot RUN`: loss and metrics as drawings in the terminal.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/report/curve.h"
#include "daemon/inspect/report/report_data.h"

namespace gaccd {

struct PlotSize {
  int columns = 80;  // no line is longer. REQUIRES: at least 40
  int rows = 13;     // of the drawing. REQUIRES: at least 2
  bool utf8 = true;  // braille; else only ASCII
};

// A title, the curve with its axes, and ^ where an attempt begins. Empty without a point. Pure.
[[nodiscard]] std::string PlotText(const std::string& title, const Curve& curve,
                                   const PlotSize& size);
// The loss of training and every metric of evaluation. Pure.
[[nodiscard]] std::string PlotText(const ReportData& story, const PlotSize& size);

// Prints it, as wide as the terminal. Errors: ReadReportData(); kUsage before the first update.
Status RunPlotCommand(const std::string& run_dir);

}  // namespace gaccd
