// The words that the ranks exchange with every update, in the reduction that happens anyway:
// doubles that are summed over the ranks (UpdateSettings::control_words,
// UpdateResult::control_words). This is the part about stopping; other parts follow it, from
// kStopWordCount on.
//
// Counts of ranks stay whole numbers in a sum of doubles. Where one rank's value is meant, the
// others send 0.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <span>

namespace gaccd {

// The signals that may stop a run; one element each, so that the reason is known everywhere.
inline constexpr std::array<int, 6> kStopSignals{SIGTERM, SIGINT,  SIGUSR1,
                                                 SIGUSR2, SIGALRM, SIGXCPU};

// Of one rank: 0 or 1 each, pace aside. Of all, summed: how many ranks.
struct StopWords {
  double stop_now = 0;                  // request to exit without saving
  double interrupted = 0;               // of these, whose last signal was SIGINT
  double stop = 0;                      // request to stop, by a signal
  double stop_file = 0;                 // rank 0 found STOP: stop, and do not requeue
  double time_up = 0;                   // the job ends soon
  double save = 0;                      // request to save and continue
  double cannot_save = 0;               // have no time left for a save
  double cannot_save_after_update = 0;  // have no time left for a save after the rest of the update
  double cannot_save_in_update = 0;     // have no time left for a save inside the update
  double pace_s = 0;                    // of rank 0: seconds a micro-step; 0 = not known
  std::array<double, kStopSignals.size()> signals{};  // request to stop by kStopSignals[i]

  bool operator==(const StopWords&) const = default;
};

inline constexpr std::size_t kStopWordCount = 10 + kStopSignals.size();  // elements

// `to` and `from` begin with the kStopWordCount elements; what follows them does not change.
void Encode(const StopWords& words, std::span<double> to);
[[nodiscard]] StopWords DecodeStopWords(std::span<const double> from);

// The words of two exchanges combined, for requests that came between them: the greater of each
// count, and the newer pace.
[[nodiscard]] StopWords Merge(const StopWords& older, const StopWords& newer);

}  // namespace gaccd
