// Events of evaluations. Durations are seconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/telemetry/event_record.h"

namespace gaccd {

// A metric of an evaluation: "accuracy", "f1_macro", ... (daemon/eval/metric.h).
struct MetricValue {
  std::string name;
  double value = 0;
};

// The best evaluation of a run so far.
struct BestValue {
  std::string metric;  // "loss", "accuracy", ...
  double value = 0;
  std::int64_t step = 0;  // updates before it; the first of equal values
};

// An evaluation; its events are MetricRecords.
struct EvalRecord {
  std::int64_t epoch = 1;
  std::int64_t step = 0;
  std::int64_t samples = 0;
  double loss = 0;                   // sum over `divisor`
  double divisor = 0;                // number of counted units
  std::string unit = "samples";      // or "tokens", "weights"
  std::vector<MetricValue> metrics;  // in the order of the job
  double dur_s = 0;
  std::optional<BestValue> best = {};  // in a training, including this one
};

// One metric of an evaluation; the value is null in JSON if it is not finite.
struct MetricRecord {
  static constexpr const char* kEvent = "eval";

  std::int64_t epoch = 1;
  std::int64_t step = 0;
  std::string metric;
  double value = 0;
  std::int64_t samples = 0;
  double divisor = 0;
  std::string unit;
  double dur_s = 0;
  std::optional<BestValue> best = {};  // set if `metric` determines the best evaluation

  static void VisitFields(auto& fields, auto& eval) {
    fields("epoch", eval.epoch);
    fields("step", eval.step);
    fields.Text("metric", eval.metric, kMaxName);
    fields("value", eval.value);
    fields.Computed("value_finite", std::isfinite(eval.value));
    fields("samples", eval.samples);
    fields("divisor", eval.divisor);
    fields.Text("unit", eval.unit, kMaxWord);
    fields("dur_s", eval.dur_s);
    fields.Group("best_step", eval.best, [&](auto& best) {
      fields("best_step", best.step);
      fields("best_value", best.value);
    });
  }
};

// One record per metric, "loss" first.
[[nodiscard]] std::vector<MetricRecord> MetricRecords(const EvalRecord& eval);

}  // namespace gaccd
