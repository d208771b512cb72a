// A data set: numbered samples of one shape, read at random. Immutable after it was opened, so any
// number of threads may read it. Features come out normalised, as f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/config/policies.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// What to do about damaged records: labels that are no class, values that are not finite.
struct BadRecordRules {
  OnBadRecord policy = OnBadRecord::kStop;
  std::int64_t quota = 0;  // so many may be skipped
  std::uint64_t seed = 0;  // decides what takes their places
};

struct BadRecord {
  std::int64_t sample = 0;
  std::int64_t replacement = 0;  // the sample that is read in its place
  std::string why;               // names file, sample and value
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const SampleSpec& spec() const = 0;
  // Those that others were put in the places of, by sample.
  [[nodiscard]] virtual std::span<const BadRecord> bad_records() const { return {}; }

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
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules = {});

}  // namespace gaccd
