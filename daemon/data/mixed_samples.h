// Training data whose samples are mixed in groups of an update (mix_group.h): `mix_group`
// consecutive positions each. The mix is a function of (seed, update, position), so the update does
// not depend on the number of ranks or on micro-batches; each rank reads the partners of its
// samples itself. A last group of one sample is not mixed.
#pragma once

#include <memory>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/sample_order.h"

namespace gaccd {

// `plain` with two more tensors: "mixed_labels" i32 [2], those of the sample and of its partner,
// and "mixed_weights" f32 [2], whose sum is the weight of the sample. Batches without a run
// position (evaluation) are not mixed. `order`: of the run. kConfig unless `plain` has features
// with one label each, which for cutmix are images. REQUIRES: data.mixup or data.cutmix.
Result<std::unique_ptr<Dataset>> MixSamples(std::unique_ptr<Dataset> plain, const DataSpec& data,
                                            const SampleOrder& order);

}  // namespace gaccd
