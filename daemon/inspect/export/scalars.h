// The figures of events that change over time, and what other programs call them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "daemon/inspect/watch/event.h"

namespace gaccd {

struct Scalar {
  std::string tag;        // of TensorBoard: "loss", "eval/accuracy"
  std::string name;       // of OpenTelemetry: "gaccd.loss", "gaccd.eval.accuracy"
  std::string_view unit;  // UCUM: "s", "By", "1", "{sample}"
  double value = 0;
};

// Calls `take` for every figure of a step, an evaluation or a save; values that are not finite have
// none.
void ForEachScalar(const Event& event, const std::function<void(const Scalar&)>& take);

}  // namespace gaccd
