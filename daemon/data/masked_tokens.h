// Masked-language modelling (Devlin et al. 2018): the model predicts masked tokens of a text. The
// mask differs between updates (Liu et al. 2019, RoBERTa) and is a function of (seed, update,
// sample, position): the same on any number of ranks and after a restart. Evaluations always use
// the same mask.
//   Each token that is not special is masked with probability p; if none is, the one with the
//   smallest random number. The label is the original token; the token becomes the mask token (80
//   %), a random token of the vocabulary (10 %) or is unchanged (10 %). All other positions, also
//   of padding, have the label kIgnoredLabel.
#pragma once

#include <memory>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// `base` with masked tokens and their "labels" [T] as last tensor. REQUIRES: `base` has "tokens"
// [T] and no "labels"; the tokens of `masked` are below its vocabulary.
[[nodiscard]] std::unique_ptr<Dataset> MakeMaskedDataset(std::unique_ptr<Dataset> base,
                                                         const MaskedTokensSpec& masked);

}  // namespace gaccd
