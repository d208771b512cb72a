// Training data whose samples are mixed in groups of an update: `mix_group`
// consecutive positions each. The mix is a function of (seed, update, position), so the update does
// not depend on the number of ranks or on micro-batches; each rank reads the partners of its
// samples itself. A last group of one sample is not mixed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/images/image_ops.h"
#include "daemon/data/sample_order.h"

namespace gaccd {

// `plain` with two more tensors: "mixed_labels" i32 [2], those of the sample and of its partner,
// and "mixed_weights" f32 [2], whose sum is the weight of the sample. Batches without a run
// position (evaluation) are not mixed. `order`: of the run. kConfig unless `plain` has features
// with one label each, which for cutmix are images. REQUIRES: data.mixup or data.cutmix.
Result<std::unique_ptr<Dataset>> MixSamples(std::unique_ptr<Dataset> plain, const DataSpec& data,
                                            const SampleOrder& order);

// Mixing of the samples of one group of an update: mixup (Zhang et al. 2018) or cutmix (Yun et al.
// 2019), as torchvision's MixUp and CutMix mix a batch:
//   lambda ~ Beta(alpha, alpha), once per group
//   mixup   x = lambda x[i] + (1 - lambda) x[partner(i)]
//   cutmix  x = x[i] outside, x[partner(i)] inside a box with a uniformly random centre; its sides
//           are those of the image times sqrt(1 - lambda), clipped at the border; lambda becomes
//           the fraction outside
// Partners are a random cyclic permutation of the group, so that no sample is its own partner.
struct GroupMix {
  // The weight of the sample itself, a multiple of 2^-24: it and 1 - lambda are exact in f32.
  float lambda = 1;
  std::optional<Box> box;              // for cutmix
  std::vector<std::int64_t> partners;  // by position in the group: the partner's position
};

// The random key of a group of an update. augmentation_seed: BatchView::augmentation_seed.
[[nodiscard]] std::uint64_t MixKey(std::uint64_t augmentation_seed, std::int64_t group);

// A function of its arguments; `key` is MixKey(). height, width: of the images, for cutmix. A group
// of one sample is not mixed. REQUIRES: data.mixup or data.cutmix; samples >= 1.
[[nodiscard]] GroupMix DrawGroupMix(const DataSpec& data, std::uint64_t key, std::int64_t samples,
                                    std::int64_t height, std::int64_t width);

}  // namespace gaccd
