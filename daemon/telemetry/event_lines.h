// Events as lines of text for users, on the terminal and in the text log.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/telemetry/checkpoint_events.h"
#include "daemon/telemetry/eval_events.h"
#include "daemon/telemetry/update_events.h"

namespace gaccd {

// "epoch: 1 step: 100, loss is 1.402374, lr 0.1, 51.2k samples/s, 0:07": at most 80 columns up to
// step 999999 of epoch 9 and 99 hours.
[[nodiscard]] std::string StepLine(const StepRecord& step, double samples_per_s, double elapsed_s);
// "epoch: 1 eval: accuracy is 0.8841, loss is 0.450000 (mean of 10000 samples)"
[[nodiscard]] std::string EventLine(const EvalRecord& eval);
// "resumed after update 20, from checkpoint step-000000000020-e000001"
[[nodiscard]] std::string EventLine(const ResumeRecord& resume);
// "loads after update 25: an update should become 1.44 times as fast; 4x13 -> 2x15,2x9"
[[nodiscard]] std::string EventLine(const RebalanceRecord& change);
[[nodiscard]] std::string EventLine(const TargetRecord& change);
// "noise scale after update 40: 5200 samples, the effective batch is 3072: a larger one saves
// updates (exponential mean of 4 measurements)"
[[nodiscard]] std::string EventLine(const NoiseScaleRecord& noise);
// The line of an evaluation after "eval: ".
[[nodiscard]] std::string EvalText(const EvalRecord& eval);

// "accuracy 0.8909, f1_macro 0.8811". between: separates a name and its value.
[[nodiscard]] std::string MetricsText(std::span<const MetricValue> metrics,
                                      std::string_view between);

}  // namespace gaccd
