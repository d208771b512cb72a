// RankTimes: which rank the others wait for. Every rank packs into an update's control words how
// long it was busy in the newest update that it knows the times of, before it waited for the
// others; so all ranks know all times, one update late (two on GPUs).
//
//   element 3r      data_s of rank r     waiting for its micro-batches
//   element 3r + 1  fwd_bwd_s of rank r  forward, backward
//   element 3r + 2  stopped_s of rank r  its process did not run: stopped, or without a core
//
// Of one update, the time lost to a rank is what the median rank would not have waited for:
//
//   busy(r) = max(data_s(r) + fwd_bwd_s(r), stopped_s(r))
//   lost(r) = busy(r) - median of busy   for the rank with the largest busy, of equal ones the
//   lowest
//             0                          for every other rank
//
// stopped_s counts by itself, as a rank that is stopped inside the reduction holds up all of them.
//
// Over the window - the last kWindow updates, or more of them until they lasted kWindowS seconds -
// a rank costs sum of lost(r) / sum of their durations. One that costs more than kShare is slow:
// a warning is logged, once until it has cost less than half of that. Updates are summed in spans
// of kSpanS seconds, so that a window of many short updates costs no more than one of long updates.
// A single pause, however long, does not make a rank slow: the span of its largest loss is left
// out, and kMinSpans spans must have lost more than kShare of their time to it. Nor does a start:
// kWindow updates must be known, or kSettled that lasted kSettledS seconds. And what lasted less
// than kMinS seconds is not worth a warning: a rank must be slow for that long, its largest loss
// left out again.
//
// A rank alone has nobody to wait for, and more than kMaxRanks would make the control words larger
// than many a model: both pack nothing.
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

// What a rank was busy with in an update, in seconds.
struct BusyTimes {
  double data_s = 0;
  double compute_s = 0;
  double stopped_s = 0;  // part of the others, or of the reduction
  double dur_s = 0;      // of the whole update; not sent to the others
};

// What a rank has cost over the window.
struct TimeLost {
  double lost_s = 0;  // at most of_s
  double of_s = 0;    // the duration of those updates
  int updates = 0;    // how many they are
  std::string_view phase;
};

struct Straggler {
  int rank = 0;  // with the largest busy time
  // "stopped" when that explains at least kStoppedShare of what was lost, else "data" or "compute":
  // what exceeds its median over the ranks by more.
  std::string_view phase;
  double ratio = 1;   // largest / median busy time (of an even number the lower middle one)
  double wait_s = 0;  // of this rank: largest - own
  std::optional<TimeLost> slow;  // to be logged: the rank has become slow
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

  // This rank's times of an update that ended.
  void SetTimes(const BusyTimes& times) { mine_ = times; }
  // Before an update: `control_words` has elements() elements.
  void Pack(std::span<double> control_words) const;
  // After it, the same summed over the ranks. Empty while no rank has sent its times.
  std::optional<Straggler> Unpack(std::span<const double> control_words);
  // data_s + fwd_bwd_s by rank, of the last Unpack(). Empty while no rank has sent its times.
  [[nodiscard]] std::span<const double> busy_s() const { return busy_s_; }

 private:
  enum Part : std::size_t { kData, kCompute, kStopped, kParts };
  struct Loss {
    double data_s = 0;  // how much the rank exceeds the medians
    double compute_s = 0;
    double stopped_s = 0;
    double lost_s = 0;
  };
  struct Span {  // consecutive updates, of kSpanS at least, or one that lasts longer
    int updates = 0;
    double dur_s = 0;
    std::map<int, Loss> losses;  // by rank
  };

  template <typename Time>
  double Median(const Time& time_of_rank);
  [[nodiscard]] static std::string_view PhaseOf(const Loss& loss);
  static void Add(const Loss& loss, Loss* sum);
  // Adds the newest update to the window.
  void Record(int rank, const Loss& loss, double dur_s);
  // What `rank`, the slowest of the newest update, has cost, if a warning is due. dur_s: of that
  // update.
  std::optional<TimeLost> DetectSlowRank(int rank, double dur_s);

  std::size_t rank_;
  std::size_t world_;
  bool summed_;
  BusyTimes mine_;
  std::vector<double> scratch_;  // by rank
  std::vector<double> busy_s_;
  std::deque<Span> window_;       // the oldest first
  int window_updates_ = 0;        // of all spans
  std::set<int> warned_;          // slow ranks with a warning
  std::map<int, double> slow_s_;  // by rank: the duration of the updates in which it was slow
};

}  // namespace gaccd
