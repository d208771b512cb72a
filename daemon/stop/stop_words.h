// Words that the ranks exchange in the reduction of every update: doubles that are summed over the
// ranks (UpdateSettings::control_words, UpdateResult::control_words). This is the part about
// stopping; other words follow from kStopWordCount on.
//
// Counts of ranks are integers in a sum of doubles. For values of a single rank, the others send 0.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <span>

namespace gaccd {

// Signals that may stop a run; one word each, so that all ranks know the reason.
inline constexpr std::array<int, 6> kStopSignals{SIGTERM, SIGINT,  SIGUSR1,
                                                 SIGUSR2, SIGALRM, SIGXCPU};

// On one rank: 0 or 1 each, except pace. Summed: numbers of ranks.
struct StopWords {
  double stop_now = 0;     // request to exit without saving
  double interrupted = 0;  // of these, ranks whose last signal was SIGINT
  double stop = 0;         // request to stop by a signal
  double stop_file = 0;    // rank 0 found STOP: stop and do not requeue
  double time_up = 0;      // the job ends soon
  double save = 0;         // request to save and continue
  double cannot_save = 0;  // ranks without time for a save
  // ranks without time for a save after the rest of the update
  double cannot_save_after_update = 0;
  double cannot_save_in_update = 0;  // ranks without time for a save inside the update
  double pace_s = 0;                 // of rank 0: seconds per micro-step; 0: not known
  std::array<double, kStopSignals.size()> signals{};  // request to stop by kStopSignals[i]

  bool operator==(const StopWords&) const = default;
};

inline constexpr std::size_t kStopWordCount = 10 + kStopSignals.size();  // elements

// `to` and `from` begin with the kStopWordCount elements; further elements are not changed.
void Encode(const StopWords& words, std::span<double> to);
[[nodiscard]] StopWords DecodeStopWords(std::span<const double> from);

// Combines the words of two exchanges, for requests between them: the maximum of each count, and
// the newer pace.
[[nodiscard]] StopWords Merge(const StopWords& older, const StopWords& newer);

}  // namespace gaccd
