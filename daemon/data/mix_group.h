// How the samples of one group of an update are mixed with one another: mixup (Zhang et al. 2018)
// or cutmix (Yun et al. 2019), as torchvision's MixUp and CutMix do with a batch:
//   lambda ~ Beta(alpha, alpha), once for the group
//   mixup   x = lambda x[i] + (1 - lambda) x[partner(i)]
//   cutmix  x = x[i], in a box x[partner(i)]; its middle is anywhere, its sides are those of the
//           image times sqrt(1 - lambda), cut off at the border; lambda becomes the share outside
// Partners are a random permutation of the group in one cycle, so that no sample is its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/data/resize_image.h"

namespace gaccd {

struct GroupMix {
  // The share of a sample itself, a multiple of 2^-24: it and 1 - lambda are exact in f32.
  float lambda = 1;
  std::optional<Box> box;              // of cutmix
  std::vector<std::int64_t> partners;  // by place in the group: another place
};

// The key of a group of an update. draw: of the update, as in BatchView.
[[nodiscard]] std::uint64_t MixKey(std::uint64_t draw, std::int64_t group);

// A function of its arguments; `key` is MixKey(). Height and width of the images: of cutmix. A
// group of one sample is not mixed. REQUIRES: data.mixup or data.cutmix; samples >= 1.
[[nodiscard]] GroupMix DrawGroupMix(const DataSpec& data, std::uint64_t key, std::int64_t samples,
                                    std::int64_t height, std::int64_t width);

}  // namespace gaccd
