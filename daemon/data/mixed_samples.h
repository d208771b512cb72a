// Training data whose samples are mixed in fixed groups of an update (mix_group.h): mix_group
// positions in a row, from its first one on. Which samples, and how, is a function of (seed,
// update, position), so every rank computes the same update, however many there are and whatever
// their micro-batches; a rank reads the partners of its samples itself. A last group of one sample
// is not mixed.
#pragma once

#include <memory>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/sample_order.h"

namespace gaccd {

// `plain` with two more tensors: "mixed_labels" i32 [2], those of the sample and of its partner,
// and "mixed_weights" f32 [2], whose sum is the weight of the sample. Batches of no run
// (evaluation) are not mixed. `order`: of the run. kConfig: `plain` has no features with one label
// each, or cutmix none that are images. REQUIRES: data.mixup or data.cutmix.
Result<std::unique_ptr<Dataset>> MixSamples(std::unique_ptr<Dataset> plain, const DataSpec& data,
                                            const SampleOrder& order);

}  // namespace gaccd
