// Whether the content of a checkpoint is consistent: its counters follow from its own job and plan,
// its parameters are numbers. Errors are kData: the checkpoint is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/result.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"

namespace gaccd {

// A buffer of f32 as its bytes were loaded.
[[nodiscard]] inline std::span<const float> AsFloats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The job of the run that was saved.
[[nodiscard]] Result<Job> SavedJob(const Manifest& manifest);

// The same, where the cursor is one that this job comes to: not past its end, with at most the
// samples that its updates take (those that were not finite may have been left out, or
// micro-batches of them), and with the samples that each rank had taken of a window.
[[nodiscard]] Result<Job> CheckedJob(const Manifest& manifest);

// `values` are those of the buffer "parameters" from element `first` on. Names the parameter and
// the index of the first value that is NaN or infinite.
[[nodiscard]] Status CheckParametersFinite(const Manifest& manifest, std::span<const float> values,
                                           std::int64_t first = 0);

}  // namespace gaccd
