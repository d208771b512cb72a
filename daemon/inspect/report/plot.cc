#include "daemon/inspect/report/plot.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/telemetry/terminal.h"

namespace gaccd {
namespace {

constexpr int kLabel = 10;  // columns of the labels at the left

// Maps low..high to 0..1, linear or logarithmic; clamps values outside.
struct AxisScale {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  [[nodiscard]] double At(double value) const {
    if (!logarithmic) return std::clamp((value - low) / (high - low), 0.0, 1.0);
    return std::log(std::max(value, low) / low) / std::log(high / low);
  }
};

// A scale for these values with margins. Logarithmic if all are above 0 and the largest is at least
// 30 times the smallest.
AxisScale ScaleFor(double low, double high) {
  if (low > 0 && high / low >= 30 && std::isfinite(high * 1.1 / (low / 1.1))) {
    return {.low = low / 1.1, .high = high * 1.1, .logarithmic = true};
  }
  // Fallback for a single value 0, and for values whose difference is not finite.
  const double margin = std::max(0.06 * (high / 2 - low / 2) * 2, std::abs(high) * 1e-3);
  if (!(margin > 0) || !std::isfinite(high - low + 2 * margin)) return {.low = -1, .high = 1};
  return {.low = low >= 0 && low - margin < 0 ? 0 : low - margin, .high = high + margin};
}

std::string FormatNumber(double value) { return Format("%.4g", value); }

// "1,228,800"
std::string FormatCount(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

// Dots in characters: eight per braille character, one per ASCII character.
class Canvas {
 public:
  Canvas(int columns, int rows, bool utf8)
      : columns_(columns), across_(utf8 ? 2 : 1), down_(utf8 ? 4 : 1) {
    cells_.resize(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows));
    right_ = columns * across_ - 1;
    bottom_ = rows * down_ - 1;
  }

  // Draws a line. Coordinates are 0..1 from the left and from the bottom.
  void Line(double x0, double y0, double x1, double y1) {
    const double from_x = x0 * right_;
    const double from_y = (1 - y0) * bottom_;
    const double to_x = x1 * right_;
    const double to_y = (1 - y1) * bottom_;
    const int dots =
        1 + static_cast<int>(std::max(std::abs(to_x - from_x), std::abs(to_y - from_y)));
    for (int i = 0; i <= dots; ++i) {
      const double share = static_cast<double>(i) / dots;
      Dot(from_x + share * (to_x - from_x), from_y + share * (to_y - from_y));
    }
  }

  // A row without trailing blanks.
  [[nodiscard]] std::string Row(int row) const {
    const auto first = cells_.begin() + static_cast<std::ptrdiff_t>(row) * columns_;
    auto end = first + columns_;
    while (end != first && end[-1] == 0) --end;
    std::string text;
    for (const unsigned cell : std::span(first, end)) {
      if (down_ == 1) {
        text += cell == 0 ? ' ' : '*';
      } else {  // U+2800 and above, as UTF-8
        text += '\xE2';
        text += static_cast<char>(0xA0 | (cell >> 6));
        text += static_cast<char>(0x80 | (cell & 0x3F));
      }
    }
    return text;
  }

 private:
  void Dot(double x, double y) {
    constexpr unsigned kBraille[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    const int column = std::clamp(static_cast<int>(std::lround(x)), 0, right_);
    const int row = std::clamp(static_cast<int>(std::lround(y)), 0, bottom_);
    cells_[static_cast<std::size_t>(row / down_ * columns_ + column / across_)] |=
        kBraille[row % down_][column % across_];
  }

  int columns_;
  int across_;
  int down_;
  int right_ = 0;
  int bottom_ = 0;
  std::vector<unsigned> cells_;
};

std::string AtRight(const std::string& text, int columns) {
  const auto width = static_cast<std::size_t>(columns);
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

// The axis below the plot: first and last update, and marks at the starts of attempts.
std::string StepAxis(const std::vector<double>& begins, std::int64_t first, std::int64_t last,
                     int columns) {
  std::string marks(static_cast<std::size_t>(columns), ' ');
  for (const double begin : begins) {
    marks[static_cast<std::size_t>(std::lround(begin * (columns - 1)))] = '^';
  }
  const std::string left = FormatCount(first);
  const std::string right = FormatCount(last);
  const int space = columns - static_cast<int>(left.size());
  const std::string indent(kLabel + 2, ' ');
  const std::string row = begins.empty() ? "" : StrCat(indent, marks, "\n");
  return StrCat(row, indent, left, AtRight(right, space), "\n");
}

}  // namespace

std::string PlotText(const std::string& title, const Curve& curve, const PlotSize& size) {
  const std::vector<CurvePiece> pieces = curve.KeptPieces();
  if (pieces.empty()) return {};
  std::vector<double> values;
  std::int64_t first = pieces[0][0].step;
  std::int64_t last = first;
  for (const CurvePiece& piece : pieces) {
    for (const CurvePoint& point : piece) {
      values.push_back(point.value);
      first = std::min(first, point.step);
      last = std::max(last, point.step);
    }
  }
  const auto [low, high] = std::ranges::minmax(values);
  const AxisScale y = ScaleFor(low, high);
  const double updates = std::max<double>(1, static_cast<double>(last - first));
  const auto x = [&](const CurvePoint& point) {
    return static_cast<double>(point.step - first) / updates;
  };
  const int columns = size.columns - kLabel - 2;
  Canvas canvas(columns, size.rows, size.utf8);
  std::vector<double> begins;
  for (const CurvePiece& piece : pieces) {
    if (&piece != &pieces.front()) begins.push_back(x(piece.front()));
    const CurvePoint* before = &piece.front();
    for (const CurvePoint& point : piece) {
      canvas.Line(x(*before), y.At(before->value), x(point), y.At(point.value));
      before = &point;
    }
  }
  std::string text = StrCat(title, ": last ", FormatNumber(pieces.back().back().value), ", from ",
                            FormatNumber(low), " to ", FormatNumber(high),
                            y.logarithmic ? ", logarithmic" : "", "\n");
  for (int row = 0; row < size.rows; ++row) {
    const double share = 1 - static_cast<double>(row) / (size.rows - 1);
    const double value =
        y.logarithmic ? y.low * std::pow(y.high / y.low, share) : y.low + share * (y.high - y.low);
    const bool labelled = row % 4 == 0 || row + 1 == size.rows;
    text += StrCat(AtRight(labelled ? FormatNumber(value) : "", kLabel), size.utf8 ? " │" : " |",
                   canvas.Row(row), "\n");
  }
  return text + StepAxis(begins, first, last, columns);
}

std::string PlotText(const ReportData& data, const PlotSize& size) {
  const auto& step = data.figures.step;
  // The curve ends before it; without labels the loss is undefined.
  const bool diverged = step && !step->Number("loss") && step->Number("divisor") != 0.0;
  std::string text =
      PlotText(diverged ? "training loss, now not finite" : "training loss", data.loss, size);
  PlotSize small = size;
  small.rows = std::max(2, (size.rows + 1) / 2);
  for (const auto& [metric, curve] : data.evals) {
    const std::string plot = PlotText(Printable(StrCat("eval ", metric)), curve, small);
    if (!plot.empty() && !text.empty()) text += '\n';
    text += plot;
  }
  return text;
}

Status RunPlotCommand(const std::string& run_dir) {
  GACCD_ASSIGN_OR_RETURN(const ReportData data,
                         ReadReportData(run_dir, std::chrono::system_clock::now()));
  const auto terminal = Terminal::Detect(STDOUT_FILENO);
  PlotSize size;
  size.utf8 = IsUtf8Locale(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
  if (terminal) size.columns = std::clamp(terminal->Columns(), 40, 200);
  const std::string text = PlotText(data, size);
  if (text.empty()) {
    return {ErrorKind::kUsage, StrCat("'", run_dir, "' has no update to draw yet")};
  }
  return PrintOut(text);
}

}  // namespace gaccd
