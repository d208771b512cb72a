// RankTimes: detects the rank that the others wait for. Every rank packs into an update's control
// words how long it was busy in the latest update with known times, excluding waits for others; so
// all ranks know all times, one update late (two on GPUs).
//
//   element 3r      data_s of rank r     waiting for its micro-batches
//   element 3r + 1  fwd_bwd_s of rank r  forward, backward
//   element 3r + 2  stopped_s of rank r  its process did not run: stopped, or without a core
//
// The time lost to a rank in one update is its excess over what the plan expects: the median rank,
// or, if a rank has twice the load of most others, twice as long.
//
//   busy(r)     = max(data_s(r) + fwd_bwd_s(r), stopped_s(r))
//   planned(r)  = load(r) / speed(r), divided by the median of these, at least 1
//   expected    = max of planned x median of busy(r) / planned(r)
//   lost(r)     = max(0, busy(r) - expected)   for the rank with the largest busy, among equals the
//                                              lowest
//                 0                            for every other rank
//
// stopped_s counts separately, as a rank that is stopped inside the reduction delays all others.
//
// The window is the last kWindow updates, or more until they lasted kWindowS seconds. The cost of a
// rank is sum of lost(r) / sum of durations over the window. A rank whose cost exceeds kShare is
// slow: a warning is logged, and the next one only after its cost was below kShare / 2. Updates are
// summed in spans of kSpanS seconds, so that a window of many short updates costs no more memory
// than one of long updates. A single pause, however long, does not make a rank slow: the span with
// its largest loss is ignored, and in at least kMinSpans spans the loss must exceed kShare of their
// time. The first updates of a run do not either: kWindow updates must be known, or kSettled
// updates that lasted kSettledS seconds. No warning within kMinS seconds: the window, without the
// span of the largest loss, or the time for which the rank was slow must last that long.
//
// A single rank has no others to wait for, and with more than kMaxRanks ranks the control words
// would be larger than many models: in both cases nothing is packed.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace gaccd {

// Busy times of a rank in an update, in seconds.
struct BusyTimes {
  double data_s = 0;
  double compute_s = 0;
  double stopped_s = 0;  // included in the others, or in the reduction
  double dur_s = 0;      // duration of the whole update; not sent to the others
};

// The cost of a rank over the window.
struct TimeLost {
  double lost_s = 0;   // at most total_s
  double total_s = 0;  // duration of these updates
  int updates = 0;     // number of updates
  std::string_view phase;
};

struct Straggler {
  int rank = 0;  // the rank with the largest busy time
  // "stopped" if that explains at least kStoppedShare of the loss; otherwise "data" or "compute",
  // whichever exceeds its expected time by more.
  std::string_view phase;
  double ratio = 1;   // largest busy time / expected, at least 1 (medians: the lower of two)
  double wait_s = 0;  // of this rank: largest busy time minus its own
  std::optional<TimeLost> slow;  // set when the rank has become slow, to be logged
};

class RankTimes {
 public:
  static constexpr int kMaxRanks = 4096;
  static constexpr int kWindow = 100;
  static constexpr double kWindowS = 10;
  static constexpr double kSpanS = 0.1;
  static constexpr int kSettled = 20;
  static constexpr double kSettledS = 60;
  static constexpr double kMinS = 1;
  static constexpr int kMinSpans = 5;
  static constexpr double kShare = 0.2;
  static constexpr double kStoppedShare = 0.3;

  RankTimes(int rank, int world);

  [[nodiscard]] std::size_t elements() const { return summed_ ? kParts * world_ : 0; }

  // Sets this rank's times of a finished update.
  void SetTimes(const BusyTimes& times) { mine_ = times; }
  // Call before an update; `control_words` has elements() elements.
  void Pack(std::span<double> control_words) const;
  // Call after it, with the sums over the ranks. planned: load / speed by rank in the update of the
  // times; empty: all equal. Empty while no rank has sent times.
  std::optional<Straggler> Unpack(std::span<const double> control_words,
                                  std::span<const double> planned = {});
  // data_s + fwd_bwd_s by rank, from the last Unpack(). Empty while no rank has sent times.
  [[nodiscard]] std::span<const double> busy_s() const { return busy_s_; }

 private:
  enum Part : std::size_t { kData, kCompute, kStopped, kParts };
  struct Loss {
    double data_s = 0;  // excess of the rank over the medians
    double compute_s = 0;
    double stopped_s = 0;
    double lost_s = 0;
  };
  struct Span {  // consecutive updates that last at most kSpanS together, or a longer one
    int updates = 0;
    double dur_s = 0;
    std::map<int, Loss> losses;  // by rank
  };

  template <typename Time>
  double Median(const Time& time_of_rank);
  void SetPlanned(std::span<const double> planned);
  template <typename Time>
  double Expected(const Time& time_of_rank);
  [[nodiscard]] static std::string_view SlowPhase(const Loss& loss);
  static void Add(const Loss& loss, Loss* sum);
  // Adds the newest update to the window.
  void Record(int rank, const Loss& loss, double dur_s);
  // The cost of `rank`, the slowest of the latest update, if a warning is due. dur_s: of that
  // update.
  std::optional<TimeLost> DetectSlowRank(int rank, double dur_s);

  std::size_t rank_;
  std::size_t world_;
  bool summed_;
  BusyTimes mine_;
  std::vector<double> scratch_;  // by rank
  std::vector<double> busy_s_;
  std::vector<double> planned_;  // planned(r)
  double max_planned_ = 1;
  std::deque<Span> window_;       // oldest first
  int window_updates_ = 0;        // in all spans
  std::set<int> warned_;          // slow ranks for which a warning was logged
  std::map<int, double> slow_s_;  // by rank: duration of the updates in which it was slow
};

}  // namespace gaccd
