#include "daemon/telemetry/progress.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr int kLongestBar = 40;
constexpr int kShortestBar = 8;
constexpr std::string_view kEraseLine = "\r\x1b[K";

double Share(const ProgressState& state) {
  if (state.steps_total <= 0) return 0;
  const double share = static_cast<double>(state.step) / static_cast<double>(state.steps_total);
  return std::clamp(share, 0.0, 1.0);
}

// A bar of `width` columns: full cells, one half cell (UTF-8 only), empty cells.
std::string Bar(double share, int width, bool utf8) {
  const int halves = static_cast<int>(std::floor(share * 2 * width));
  const int full = halves / 2;
  const bool half = utf8 && halves % 2 == 1;
  std::string bar;
  for (int i = 0; i < full; ++i) bar += utf8 ? "━" : "#";
  if (half) bar += "╸";
  for (int i = full + (half ? 1 : 0); i < width; ++i) bar += utf8 ? "┄" : ".";
  return bar;
}

}  // namespace

std::string DurationText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds >= 100.0 * 3600) return Format("%.0f days", seconds / 86400);
  const long rounded = std::lround(seconds);
  if (rounded >= 3600) {
    return Format("%ld:%02ld:%02ld", rounded / 3600, rounded / 60 % 60, rounded % 60);
  }
  return Format("%ld:%02ld", rounded / 60, rounded % 60);
}

std::string RateText(double rate) {
  if (!(rate >= 9999.5)) return StrCat(std::llround(std::max(rate, 0.0)));
  std::string_view units = "kMGTPE";
  double value = rate / 1e3;
  for (; value >= 999.5 && units.size() > 1; units.remove_prefix(1)) value /= 1e3;
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return Format("%.*f%c", digits, value, units[0]);
}

std::string ProgressLine(const ProgressState& state, int columns, bool utf8) {
  const std::size_t width = static_cast<std::size_t>(std::max(1, columns - 1));
  const double share = Share(state);
  // ASCII, so bytes are columns. Most important first.
  const std::string parts[] = {
      Format("%3d%%", static_cast<int>(std::floor(share * 100))),
      Format("loss %.4g", WithoutNanSign(state.loss)),
      DurationText(state.eta_s) + " left",
      RateText(state.samples_per_s) + " samples/s",
      StrCat(state.step, "/", state.steps_total),
      StrCat("epoch ", state.epoch),
      Format("lr %.3g", state.lr),
  };
  constexpr std::size_t kGap = 2;
  bool fits[std::size(parts)] = {};
  std::size_t used = 0;
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    const std::size_t needed = parts[i].size() + (used == 0 ? 0 : kGap);
    if (used + needed > width) break;
    fits[i] = true;
    used += needed;
  }
  const int left = static_cast<int>(width - used) - static_cast<int>(kGap);
  std::string line;
  const auto add = [&line](const std::string& part) {
    if (!line.empty()) line += "  ";
    line += part;
  };
  if (fits[5]) add(parts[5]);
  if (left >= kShortestBar) add(Bar(share, std::min(left, kLongestBar), utf8));
  for (const std::size_t i : {0, 4, 1, 6, 3, 2}) {
    if (fits[i]) add(parts[i]);
  }
  return line;
}

void Progress::Update(const ProgressState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  const auto now = std::chrono::steady_clock::now();
  const bool last = state.step >= state.steps_total;
  if (shown_ && !last && now - drawn_ < kRedraw) return;
  if (!output_.Flush() || !terminal_.Ready()) return;
  drawn_ = now;
  Draw();
}

void Progress::PrintAbove(std::string_view line) {
  const std::lock_guard lock(mutex_);
  output_.Write(StrCat(shown_ ? kEraseLine : "", line, "\n"));
  if (shown_) Draw();
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) output_.Write(std::string(kEraseLine));
  shown_ = false;
}

void Progress::Draw() {
  // Erases after the text, which avoids flicker.
  output_.Write(StrCat("\r", ProgressLine(state_, terminal_.Columns(), utf8_), "\x1b[K"));
  shown_ = true;
}

}  // namespace gaccd
