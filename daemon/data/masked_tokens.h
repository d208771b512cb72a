// Masked-language modelling (Devlin et al. 2018): tokens of a text are masked, and the model is to
// find them. Which ones is drawn anew in every update (Liu et al. 2019, RoBERTa), as a function of
// (seed, update, sample, place): the same on any number of ranks and after a restart. Evaluations
// mask the same ones every time.
//   Token t of a text, unless it is a special one, is masked with the probability p; where that
//   would be none, the one with the smallest draw is. Its label is
//   what it was; it becomes the mask token (8 of 10 times), any token of the vocabulary (1 of 10)
//   or stays (1 of 10). All others have the label kIgnoredLabel, and so has padding.
#pragma once

#include <memory>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// `whole` with tokens masked and, as its last tensor, their "labels" [T]. REQUIRES: `whole` has
// "tokens" [T] and no "labels"; the tokens of `masked` are below its vocabulary.
[[nodiscard]] std::unique_ptr<Dataset> MakeMaskedDataset(std::unique_ptr<Dataset> whole,
                                                         const MaskedTokensSpec& masked);

}  // namespace gaccd
