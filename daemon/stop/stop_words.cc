#include "daemon/stop/stop_words.h"

#include <algorithm>

namespace gaccd {
namespace {

// The order of the words. Pace is the last of these.
constexpr std::array kFields{&StopWords::stop_now,
                             &StopWords::interrupted,
                             &StopWords::stop,
                             &StopWords::stop_file,
                             &StopWords::time_up,
                             &StopWords::save,
                             &StopWords::cannot_save,
                             &StopWords::cannot_save_after_update,
                             &StopWords::cannot_save_in_update,
                             &StopWords::pace_s};
static_assert(kFields.size() + kStopSignals.size() == kStopWordCount);

}  // namespace

void Encode(const StopWords& words, std::span<double> to) {
  for (std::size_t i = 0; i < kFields.size(); ++i) to[i] = words.*kFields[i];
  std::copy(words.signals.begin(), words.signals.end(), to.subspan(kFields.size()).begin());
}

StopWords DecodeStopWords(std::span<const double> from) {
  StopWords words;
  for (std::size_t i = 0; i < kFields.size(); ++i) words.*kFields[i] = from[i];
  std::copy_n(from.subspan(kFields.size()).begin(), words.signals.size(), words.signals.begin());
  return words;
}

StopWords Merge(const StopWords& older, const StopWords& newer) {
  StopWords both = newer;
  for (const auto field : kFields) both.*field = std::max(older.*field, newer.*field);
  both.pace_s = newer.pace_s > 0 ? newer.pace_s : older.pace_s;
  for (std::size_t i = 0; i < both.signals.size(); ++i) {
    both.signals[i] = std::max(older.signals[i], newer.signals[i]);
  }
  return both;
}

}  // namespace gaccd
