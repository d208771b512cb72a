// The rules of all optimisers: for one update of one parameter, what CPU and GPU do alike. A rule
// is a struct of static members, for example in adamw.h:
//   Spec, Factors     its settings; what the formula needs for one update of a group, floats
//   kName, kStates    "adamw"; floats of state a parameter has
//   Check             of a Spec: kConfig with the offending value
//   FactorsOf         for update 1, 2, ... with the learning rate of it; gradient_scale 1
//   Update, Loop      the formula, without calls of std:: (state after `param`); the same over n
//                     parameters, by SIMD clones, compiled as CMakeLists.txt says
#pragma once

#include <utility>
#include <variant>

#include "collectives/base/overloaded.h"
#include "daemon/optim/adagrad.h"
#include "daemon/optim/adamw.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/sgd.h"

namespace gaccd {

// use(rule, spec) with the rule of this optimiser: the table of all.
template <typename Use>
auto WithRule(const OptimizerSpec& optimizer, const Use& use) {
  return std::visit(Overloaded{[&](const SgdSpec& spec) {
                                 if (spec.momentum == 0) return use(PlainSgd(), spec);
                                 if (spec.nesterov) return use(NesterovSgd(), spec);
                                 return use(MomentumSgd(), spec);
                               },
                               [&](const AdamWSpec& spec) { return use(AdamW(), spec); },
                               [&](const AdagradSpec& spec) { return use(Adagrad(), spec); }},
                    optimizer.kind);
}

// The settings and the learning rate are in range; kInternal: more than 2^59 parameters.
Status CheckOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges);

}  // namespace gaccd
