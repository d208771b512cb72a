// A data set: numbered samples of one shape, read at random. Immutable after it was opened, so any
// number of threads may read it. Features come out normalised, as f32, whatever the file holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

class NodeShare;

// What to do about damaged records: labels that are no class, values that are not finite.
struct BadRecordRules {
  OnBadRecord policy = OnBadRecord::kStop;
  std::int64_t quota = 0;  // so many may be skipped
  std::uint64_t seed = 0;  // decides what takes their places
  std::int64_t used = 0;   // of the quota, by a set that was opened before
  bool leave_out = false;  // nothing takes their places: the set is smaller by them
};

struct BadRecord {
  std::int64_t sample = 0;
  std::int64_t replacement = kLeftOut;  // the sample that is read in its place
  std::string why;                      // names file, sample and value

  static constexpr std::int64_t kLeftOut = -1;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const SampleSpec& spec() const = 0;
  // Those that others were put in the places of, or that were left out, by sample.
  [[nodiscard]] virtual std::span<const BadRecord> bad_records() const { return {}; }

  // kData with both values when a mapped file is no longer what was opened: another size or time of
  // change, or another file in its place; kIo when that cannot be determined. One or two system
  // calls a file. What was copied when the set was opened (gzip, labels) may change.
  [[nodiscard]] virtual Status CheckUnchanged() const { return Status::Ok(); }

  // Why a sample could not be read, the first time, of data that is read when it is gathered:
  // images. What Gather() gave for it is not to be used. Thread-safe; cheap while all is well.
  [[nodiscard]] virtual Status ReadError() const { return Status::Ok(); }

  // The tokens of a sample that are no padding. REQUIRES: spec().cuts is not empty.
  [[nodiscard]] virtual std::int64_t Length(std::int64_t /*index*/) const { return 0; }

  // How many of these samples have no label that counts in a loss: each is ignored, or has the
  // weight 0. REQUIRES: every index in [0, size()).
  [[nodiscard]] virtual std::int64_t CountUnlabelled(
      std::span<const std::int64_t> /*indices*/) const {
    return 0;
  }

  // What is converted when it is read: "features f64 -> f32, labels i64 -> i32". Empty: nothing.
  [[nodiscard]] virtual std::string conversions() const { return {}; }

  // Copies sample indices[i] to row i of every tensor of `out`; out.ids is not looked at. REQUIRES:
  // out.samples == indices.size(), every index in [0, size()), out.length 0 or at least the
  // Length() of each. Content was checked when the set was opened, so this cannot fail, but for
  // ReadError(); it does not allocate, but for images and mixed samples.
  virtual void Gather(std::span<const std::int64_t> indices, const BatchView& out) const = 0;
};

// Opens and checks a source: sizes, magic numbers, label ranges. Errors: kIo (cannot be read),
// kData (content), kConfig (a normalisation or a synthetic set that cannot be), with the file and
// both values. Formats: idx.h, npy.h, synthetic.h. Large plain files are mapped: they must not be
// changed while they are in use. `share`: of this rank's node, or null. A relative path that does
// not exist is taken from `folder`, unless it is empty. column_names: MatchColumns().
Result<std::unique_ptr<Dataset>> OpenDataset(const SourceSpec& source,
                                             const NormalizeSpec& normalize,
                                             const BadRecordRules& rules = {},
                                             NodeShare* share = nullptr,
                                             const std::string& folder = "",
                                             std::vector<std::string> column_names = {});

// Of all samples. Reads their labels, where some may not count.
[[nodiscard]] std::int64_t CountUnlabelled(const Dataset& data);

// The samples as the job makes batches of them: without cuts, where they are not grouped by length.
[[nodiscard]] SampleSpec BatchSpecOf(const Job& job, const Dataset& data);

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;  // null: the job has none
  bool eval_weighted = true;      // false: only the training data has weights; here all are 1
};
// Both sets of a job, with one quota: damaged records are replaced in the training data and left
// out of the evaluation data, so that its mean is over samples that are there. The columns of
// tables are those of data.column_name, or of the first table, MatchColumns(). A relative path that
// does not exist is taken from the job's folder. Where only the training data has weights of its
// labels, all of the evaluation data count as 1. kConfig as well when their samples differ in kind.
Result<TrainingData> OpenTrainingData(const Job& job, const BadRecordRules& rules = {},
                                      NodeShare* share = nullptr);

}  // namespace gaccd
