// `gaccd plot RUN`: plots of loss and metrics in the terminal.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/report/curve.h"
#include "daemon/inspect/report/report_data.h"

namespace gaccd {

struct PlotSize {
  int columns = 80;  // maximum length of lines. REQUIRES: at least 40
  int rows = 13;     // of the plot. REQUIRES: at least 2
  bool utf8 = true;  // braille; else only ASCII
};

// Title, curve, axes, and ^ at the start of each attempt. Empty without points. Pure.
[[nodiscard]] std::string PlotText(const std::string& title, const Curve& curve,
                                   const PlotSize& size);
// Plots of the training loss and of every evaluation metric. Pure.
[[nodiscard]] std::string PlotText(const ReportData& data, const PlotSize& size);

// Prints the plots in the width of the terminal. Errors: ReadReportData(); kUsage before the first
// update.
Status RunPlotCommand(const std::string& run_dir);

}  // namespace gaccd
