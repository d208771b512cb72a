#include "daemon/report/format_number.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

std::string Formatted(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::string FormatCount(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::ptrdiff_t first = count < 0 ? 1 : 0;
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > first; at -= 3) {
    text.insert(static_cast<std::size_t>(at), ",");
  }
  return text;
}

std::string FormatNumber(double value) { return Formatted("%.4g", value); }

std::string FormatFixed(double value) { return Formatted("%.2f", value); }

std::string FormatLongTime(double seconds) {
  // A unit, as of the other figures, and no word of one language.
  return seconds >= 100.0 * 3600 ? Formatted("%.0f d", seconds / 86400) : DurationText(seconds);
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 100) return FormatLongTime(seconds);
  if (seconds < 1e-9) return "0 s";
  if (seconds >= 1) return Formatted("%.3g s", seconds);
  return seconds >= 1e-3 ? Formatted("%.3g ms", seconds * 1e3)
                         : Formatted("%.3g us", seconds * 1e6);
}

std::string FormatBytes(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return Formatted("%.3g ", bytes).append(kUnits[unit]);
}

std::string FormatPercent(double share) {
  const double percent = 100 * share;
  return Formatted(percent != 0 && std::abs(percent) < 99.95 ? "%.1f %%" : "%.0f %%", percent);
}

std::string FormatSignedPercent(double share) {
  return share == 0 ? "0 %" : Formatted("%+.1f %%", 100 * share);
}

}  // namespace gaccd
