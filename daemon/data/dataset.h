// A data set: numbered samples of one shape with random access. Immutable after opening, so any
// number of threads may read it. Features are returned normalised, as f32.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

class NodeShare;

// How damaged records (bad_records.h) are handled.
struct BadRecordRules {
  OnBadRecord policy = OnBadRecord::kStop;
  std::int64_t quota = 0;  // maximum number of skipped records
  std::uint64_t seed = 0;  // determines their replacements
  std::int64_t used = 0;   // part of the quota used by data sets opened before
  bool leave_out = false;  // removed from the set instead of replaced
};

struct BadRecord {
  std::int64_t sample = 0;
  std::int64_t replacement = kLeftOut;  // the sample read instead
  std::string why;                      // with file, sample and value

  static constexpr std::int64_t kLeftOut = -1;
};

// Numbers of samples. A label counts in a loss unless it is ignored or has weight 0.
struct LabelCounts {
  std::int64_t unlabelled = 0;  // without a label that counts
  std::int64_t padded = 0;      // with such a label after their length
  LabelCounts& operator+=(const LabelCounts& other) {
    unlabelled += other.unlabelled;
    padded += other.padded;
    return *this;
  }
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const SampleSpec& spec() const = 0;
  // The replaced or removed records, by sample.
  [[nodiscard]] virtual std::span<const BadRecord> bad_records() const { return {}; }

  // kData with both values if a mapped file has another size or modification time than when it was
  // opened, or its path is another file; kIo if that cannot be determined. One or two system calls
  // per file. Files that were copied when the set was opened (gzip, labels) are not checked.
  [[nodiscard]] virtual Status CheckUnchanged() const { return Status::Ok(); }

  // The first error of Gather(), for data that is read there (images); the output of that sample
  // must not be used. Thread-safe; cheap without an error.
  [[nodiscard]] virtual Status ReadError() const { return Status::Ok(); }

  // Memory that Gather() of this many samples needs at most, besides its output.
  [[nodiscard]] virtual std::int64_t gather_bytes(std::int64_t /*samples*/) const { return 0; }

  // The number of tokens of a sample without padding. REQUIRES: spec().cuts is not empty.
  [[nodiscard]] virtual std::int64_t Length(std::int64_t /*index*/) const { return 0; }

  // REQUIRES: every index in [0, size()).
  [[nodiscard]] virtual LabelCounts CountLabels(std::span<const std::int64_t> /*indices*/) const {
    return {};
  }

  // Type conversions: "features f64 -> f32, labels i64 -> i32". Empty: none.
  [[nodiscard]] virtual std::string conversions() const { return {}; }

  // Whether "features" are stored as integers, 0 to 255, or as floats, which have another scale.
  // Empty: unknown.
  [[nodiscard]] virtual std::optional<bool> has_integer_features() const { return std::nullopt; }

  // Copies sample indices[i] to row i of every tensor of `out`; out.ids is not used. REQUIRES:
  // out.samples == indices.size(), every index in [0, size()), out.length 0 or at least the
  // Length() of each. Cannot fail except by ReadError(), because the content was checked when the
  // set was opened. Allocates only for images and mixed samples.
  virtual void Gather(std::span<const std::int64_t> indices, const BatchView& out) const = 0;
};

// Opens and checks a source: sizes, magic numbers, ranges of values. Errors, with the file and both
// values: kIo (unreadable), kData (content), kConfig (invalid normalisation or settings of the
// source). Plain binary files are mapped and must not change while they are in use. `share`: of
// this rank's node, or null. A relative path that does not exist is looked up in `folder`, unless
// it is empty. column_names: the expected order of columns, see MatchColumns().
Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules = {},
                                             NodeShare* share = nullptr,
                                             const std::string& folder = "",
                                             std::vector<std::string> column_names = {});

// For all samples. Reads their labels if some may not count.
[[nodiscard]] LabelCounts CountLabels(const Dataset& data);

// The spec of the samples in batches of the job: without cuts unless it groups by length.
[[nodiscard]] SampleSpec MakeBatchSpec(const Job& job, const Dataset& data);

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;  // null: the job has no evaluation data
  bool eval_weighted = true;      // false: only the training data has weights; those of eval are 1
};
// Opens both sets of a job, with a common quota: damaged records are replaced in the training data
// and removed from the evaluation data, so that its mean only covers intact samples. The order of
// columns is that of data.column_name, or of the first table with names, see MatchColumns(). A
// relative path that does not exist is looked up in the job's folder. If only the training data has
// label weights, those of the evaluation data are 1. Errors: also kConfig if the specs differ.
Result<TrainingData> OpenTrainingData(const Job& job, const BadRecordRules& rules = {},
                                      NodeShare* share = nullptr);

// DerivedDataset: a data set that changes some properties of another one.
class DerivedDataset : public Dataset {
 public:
  [[nodiscard]] std::int64_t size() const override { return base_->size(); }
  [[nodiscard]] const SampleSpec& spec() const final { return spec_; }
  [[nodiscard]] std::span<const BadRecord> bad_records() const override {
    return base_->bad_records();
  }
  [[nodiscard]] Status CheckUnchanged() const final { return base_->CheckUnchanged(); }
  [[nodiscard]] Status ReadError() const final { return base_->ReadError(); }
  [[nodiscard]] std::string conversions() const final { return base_->conversions(); }
  [[nodiscard]] std::optional<bool> has_integer_features() const final {
    return base_->has_integer_features();
  }
  [[nodiscard]] std::int64_t gather_bytes(std::int64_t samples) const override {
    return base_->gather_bytes(samples);
  }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    return base_->Length(index);
  }
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    return base_->CountLabels(indices);
  }

 protected:
  explicit DerivedDataset(std::unique_ptr<Dataset> base)
      : base_(std::move(base)), spec_(base_->spec()) {}

  const std::unique_ptr<Dataset> base_;
  SampleSpec spec_;  // initially that of the base; changed by constructors only
};

// Adds label weights of 1 to a data set: for evaluation data when only the training data has
// weights.

// Adds the tensor "weights" of `weighted` to those of `plain`, at the same place. REQUIRES: `plain`
// has fewer than kMaxTensors tensors, and none of this name.
[[nodiscard]] std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                                        const SampleSpec& weighted);

}  // namespace gaccd
