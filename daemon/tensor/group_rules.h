// The rules of a job for parameter groups, selected by name.
#pragma once

#include <map>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// In a pattern, * matches any text and ? any character.
[[nodiscard]] bool MatchesPattern(const std::string& pattern, const std::string& name);

// If several rules match a parameter, the last one that sets a value counts; values that no rule
// sets stay as the model declares them. kConfig: a pattern matches no parameter (running statistics
// are not parameters), or no trainable parameter is left. tied: other names of parameters, which
// patterns do not match, for messages.
Status ApplyGroupRules(const OptimizerSpec& spec, FlatLayout* layout,
                       const std::map<std::string, std::string>& tied = {});

// The weight decay of parameters whose group sets none.
[[nodiscard]] double OwnWeightDecay(const OptimizerSpec& spec);

// Text with the number of parameters per weight decay, each with the name of the first: "0.1 for
// 26 of 79 (transformer.wte.weight, ...); 0 for 53 (transformer.h.0.ln_1.weight, ...)", "frozen: 2
// (...)" for frozen ones; "none" if all are 0.
[[nodiscard]] std::string DecayText(const FlatLayout& layout, const OptimizerSpec& spec);

}  // namespace gaccd
