// Data sets of the cases of engine_runs.h. Every value is a function of the number of its sample.
#pragma once

#include <memory>

#include "daemon/data/dataset.h"

namespace gaccd::tests {

// "tokens" and "labels" [T], with "weights" where the spec has them. Sequences have different
// numbers of labels, some none.
[[nodiscard]] std::unique_ptr<Dataset> TokenData(std::int64_t size, const SampleSpec& spec);

// "tokens" and "segments" [T], "lengths" [] from 1 to T, "labels" [] where there are classes. What
// lies beyond the length of a text is another text.
[[nodiscard]] std::unique_ptr<Dataset> TextData(std::int64_t size, const SampleSpec& spec);

// "features" and labels or targets. poisoned: this sample has a NaN; -1: none.
[[nodiscard]] std::unique_ptr<Dataset> HashedData(std::int64_t size, const SampleSpec& spec,
                                                  std::int64_t poisoned);

}  // namespace gaccd::tests
