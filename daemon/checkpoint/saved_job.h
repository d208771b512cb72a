// Checks that the content of a checkpoint is consistent: its counters match its job and plan, and
// its parameters are finite. Errors are kData: the checkpoint is damaged; or kConfig: its job is
// not one of this version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/result.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"

namespace gaccd {

// Interprets loaded bytes of an f32 buffer.
[[nodiscard]] inline std::span<const float> AsFloats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The job of the saved run.
[[nodiscard]] Result<Job> SavedJob(const Manifest& manifest);

// The same, after checking that this job can reach the cursor: it is not past its end, has at most
// the samples of its updates (non-finite updates or micro-batches may have been skipped), and the
// samples that each rank had processed in a partial update.
[[nodiscard]] Result<Job> CheckedJob(const Manifest& manifest);

// values: the elements of the buffer "parameters" from `first` on. The error names the parameter
// and the index of the first value that is NaN or infinite.
[[nodiscard]] Status CheckParametersFinite(const Manifest& manifest, std::span<const float> values,
                                           std::int64_t first = 0);

}  // namespace gaccd
