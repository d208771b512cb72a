#include "daemon/telemetry/step_stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "collectives/base/time.h"

namespace gaccd {
namespace {

double OwnSamples(const StepRecord& record) {
  return static_cast<double>(record.samples) * record.own_share;
}

}  // namespace

void StepStats::Add(double seconds) {
  window_[next_] = seconds;
  next_ = (next_ + 1) % kWindow;
  count_ = std::min(count_ + 1, kWindow);
}

double StepStats::Quantile(double share) const {
  if (count_ == 0) return 0;
  std::array<double, kWindow> sorted = window_;
  const double rank = std::ceil(share * static_cast<double>(count_));
  const auto place = std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(rank) - 1, 0,
                                                static_cast<std::ptrdiff_t>(count_) - 1);
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count_);
  std::nth_element(sorted.begin(), sorted.begin() + place, end);
  return sorted[static_cast<std::size_t>(place)];
}

double StepStats::Mean() const {
  if (count_ == 0) return 0;
  const auto end = window_.begin() + static_cast<std::ptrdiff_t>(count_);
  return std::accumulate(window_.begin(), end, 0.0) / static_cast<double>(count_);
}

double StepStats::Remaining(std::int64_t updates) const {
  return Mean() * static_cast<double>(std::max<std::int64_t>(0, updates));
}

StepRates StepClock::Count(const StepRecord& record) {
  const Clock::time_point now = Clock::now();
  // The time before the first update is not counted.
  const bool first = last_ == Clock::time_point{};
  const double since_last = first ? 0 : SecondsSince(last_, now);
  last_ = now;
  const std::chrono::duration<double> taken(record.dur_s);
  if (first) start_ = now - std::chrono::duration_cast<Clock::duration>(taken);
  samples_ += OwnSamples(record);
  const double whole_s = record.dur_s / record.own_share;
  updates_.Add(whole_s);
  intervals_.Add(std::max(whole_s, since_last));
  StepRates rates;
  if (record.dur_s > 0) rates.samples_per_s = OwnSamples(record) / record.dur_s;
  const double since_start = SecondsSince(start_, now);
  if (since_start > 0) rates.wall_samples_per_s = samples_ / since_start;
  rates.dur_p50_s = updates_.Quantile(0.50);
  rates.dur_p99_s = updates_.Quantile(0.99);
  sizes_.Add(static_cast<double>(record.samples));
  rates.eta_s = intervals_.Remaining(record.steps_total - record.step);
  if (record.samples_left && sizes_.Mean() > 0) {
    rates.eta_s = intervals_.Mean() / sizes_.Mean() * static_cast<double>(*record.samples_left);
  }
  return rates;
}

std::optional<double> LineClock::Due(const StepRecord& record, Clock::time_point now) {
  samples_ += OwnSamples(record);
  const bool due = (log_every_ > 0 && record.step % log_every_ == 0) || record.skipped ||
                   record.step == record.steps_total || now - last_line_ >= kLongest;
  if (!due) return std::nullopt;
  const double seconds = SecondsSince(last_line_, now);
  const double rate = seconds > 0 ? samples_ / seconds : 0;
  samples_ = 0;
  last_line_ = now;
  return rate;
}

std::optional<RankStepRecord> RankSteps::Add(const StepRecord& step, Clock::time_point now) {
  sum_.step = step.step;
  ++sum_.updates;
  sum_.dur_max_s = std::max(sum_.dur_max_s, step.dur_s);
  sum_.dur_s += step.dur_s;
  sum_.data_s += step.data_s;
  sum_.fwd_bwd_s += step.fwd_bwd_s;
  sum_.reduce_s += step.reduce_s;
  sum_.opt_s += step.opt_s;
  sum_.wait_s += step.wait_s.value_or(0);
  if (last_ && now - *last_ < period_) return std::nullopt;
  last_ = now;
  return MakeRecord();
}

std::optional<RankStepRecord> RankSteps::MakeRecord() {
  RankStepRecord mean = std::exchange(sum_, {});
  if (mean.updates == 0) return std::nullopt;
  for (double* seconds :
       {&mean.dur_s, &mean.data_s, &mean.fwd_bwd_s, &mean.reduce_s, &mean.opt_s, &mean.wait_s}) {
    *seconds /= static_cast<double>(mean.updates);
  }
  mean.memory_bytes = memory_.Bytes();
  return mean;
}

}  // namespace gaccd
