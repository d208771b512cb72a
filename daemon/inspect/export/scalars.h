// Time series of events, with their names in other programs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "daemon/inspect/watch/event.h"

namespace gaccd {

struct Scalar {
  std::string tag;        // in TensorBoard: "loss", "eval/accuracy"
  std::string name;       // in OpenTelemetry: "gaccd.loss", "gaccd.eval.accuracy"
  std::string_view unit;  // UCUM: "s", "By", "1", "{sample}"
  double value = 0;
};

// Calls `take` for every finite figure of a step, an evaluation or a save.
void ForEachScalar(const Event& event, const std::function<void(const Scalar&)>& take);

}  // namespace gaccd
