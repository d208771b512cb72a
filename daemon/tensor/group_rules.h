// Which parameters the optimiser treats otherwise: the rules of a job, by name.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// In a pattern * matches any text and ? any character.
[[nodiscard]] bool MatchesPattern(const std::string& pattern, const std::string& name);

// Where several rules match a parameter, the last one that gives a value counts; what no rule gives
// stays as the model declared it. kConfig: a pattern that matches no parameter, or nothing is left
// to train.
Status ApplyGroupRules(const OptimizerSpec& spec, FlatLayout* layout);

// That of parameters whose group gives none.
[[nodiscard]] double OwnWeightDecay(const OptimizerSpec& spec);

// Which weight decay how many parameters have, each with the first of them: "0.1 of 26 of 79,
// transformer.wte.weight first; 0 of 53, transformer.h.0.ln_1.weight first"; "none" where all is 0.
[[nodiscard]] std::string DecayText(const FlatLayout& layout, const OptimizerSpec& spec);

}  // namespace gaccd
