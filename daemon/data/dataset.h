// A data set: numbered samples of one shape, read at random. Immutable after it was opened, so any
// number of threads may read it. Features come out normalised, as f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

struct SampleSpec {
  std::vector<std::int64_t> feature_shape;  // of one sample, without the batch dimension
  std::int64_t classes = 0;                 // > 0: the target is a label in [0, classes)
  std::int64_t target_width = 0;  // classes == 0: the target is a vector of so many floats

  [[nodiscard]] std::int64_t feature_elements() const;  // product of feature_shape
};

// Samples side by side in caller-owned memory. Exactly one of labels and targets is used.
struct BatchView {
  std::int64_t samples = 0;
  float* features = nullptr;       // [samples, feature_shape...]
  std::int32_t* labels = nullptr;  // [samples]
  float* targets = nullptr;        // [samples, target_width]
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const SampleSpec& spec() const = 0;

  // Copies sample indices[i] to row i of `out`. REQUIRES: out.samples == indices.size(), every
  // index in [0, size()). Content was checked when the set was opened, so this cannot fail; it does
  // not allocate.
  virtual void Gather(std::span<const std::int64_t> indices, const BatchView& out) const = 0;
};

// Opens and checks a source: sizes, magic numbers, label ranges. Errors: kIo (cannot be read),
// kData (content), kConfig (a normalisation or a synthetic set that cannot be), with the file and
// both values. Formats: idx.h, npy.h, synthetic.h. Large plain files are mapped: they must not be
// changed while they are in use.
Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize);

}  // namespace gaccd
