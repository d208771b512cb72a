#include "daemon/stop/news.h"

#include <algorithm>

namespace gaccd {
namespace {

// The order on the wire. Pace is the last of them.
constexpr std::array kFields{&StopNews::stop_now,      &StopNews::interrupted,
                             &StopNews::stop,          &StopNews::stop_file,
                             &StopNews::time_up,       &StopNews::save,
                             &StopNews::save_misfit,   &StopNews::rest_misfit,
                             &StopNews::window_misfit, &StopNews::pace_s};
static_assert(kFields.size() + kNewsSignals.size() == kStopNews);

}  // namespace

void Encode(const StopNews& news, std::span<double> to) {
  for (std::size_t i = 0; i < kFields.size(); ++i) to[i] = news.*kFields[i];
  std::copy(news.signals.begin(), news.signals.end(), to.subspan(kFields.size()).begin());
}

StopNews DecodeStopNews(std::span<const double> from) {
  StopNews news;
  for (std::size_t i = 0; i < kFields.size(); ++i) news.*kFields[i] = from[i];
  std::copy_n(from.subspan(kFields.size()).begin(), news.signals.size(), news.signals.begin());
  return news;
}

StopNews Merge(const StopNews& older, const StopNews& newer) {
  StopNews both = newer;
  for (const auto field : kFields) both.*field = std::max(older.*field, newer.*field);
  both.pace_s = newer.pace_s > 0 ? newer.pace_s : older.pace_s;
  for (std::size_t i = 0; i < both.signals.size(); ++i) {
    both.signals[i] = std::max(older.signals[i], newer.signals[i]);
  }
  return both;
}

}  // namespace gaccd
