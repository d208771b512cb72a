// SampleSpec: the tensors of a sample. BatchView, BatchMemory: a batch of samples in memory. The
// interface between data and model.
//
// Names read by models: "features" f32, "tokens" i32 [T], "lengths" i32 [], "segments" i32 [T].
// Names read by losses: "labels" i32 [] or [T], "weights" f32, one per label, "targets" f32
// [width]. Mixed samples (data/mixed_samples.h) in training replace "labels" and "weights" by
// "mixed_labels" i32 [2] and "mixed_weights" f32 [2].
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // of one sample, without the batch dimension

  [[nodiscard]] std::int64_t elements() const { return Elements(shape); }  // per sample
  [[nodiscard]] std::int64_t bytes() const {                               // per sample
    return elements() * static_cast<std::int64_t>(SizeOf(dtype));
  }
  bool operator==(const TensorSpec&) const = default;
};

// Default label of tokens that losses and metrics ignore.
inline constexpr std::int32_t kIgnoredLabel = -100;

// The maximum number of tensors of a sample.
inline constexpr std::size_t kMaxTensors = 8;

struct SampleSpec {
  std::vector<TensorSpec> tensors;  // with unique names
  std::int64_t classes = 0;     // > 0: "labels" are in [0, classes), or ignored_label for tokens
  std::int64_t vocabulary = 0;  // > 0: "tokens" are in [0, vocabulary)
  std::int32_t ignored_label = kIgnoredLabel;
  // Lengths to which the IsPerToken() tensors of a batch may be cut if all its samples are that
  // short. Ascending, each below the T of "tokens". Empty: never cut.
  std::vector<std::int64_t> cuts = {};
  // By name: the same limit as `vocabulary` for other tensors of ids.
  std::map<std::string, std::int64_t> other_vocabularies = {};

  // Sets the vocabulary of a tensor of ids, or lowers it to `limit`.
  void LimitVocabulary(const std::string& tensor, std::int64_t limit);
  // Null if the samples have no tensor of this name.
  [[nodiscard]] const TensorSpec* Find(std::string_view name) const;
  bool operator==(const SampleSpec&) const = default;
};

// "features" with "labels" [], and "features" with "targets" [width].
[[nodiscard]] SampleSpec LabelledSample(Shape features, std::int64_t classes);
[[nodiscard]] SampleSpec TargetSample(Shape features, std::int64_t width);

// "features f32 [28, 28], labels i32 [], 10 classes"
[[nodiscard]] std::string Describe(const SampleSpec& spec);

// Whether a tensor has a value for every token of a text, including padding: "tokens", "segments"
// and "labels" [T].
[[nodiscard]] bool IsPerToken(const TensorSpec& tensor);

// The spec of a batch cut to `length`; 0: unchanged.
[[nodiscard]] SampleSpec CutTo(SampleSpec spec, std::int64_t length);
// Bytes of one sample in a batch cut to `length`.
[[nodiscard]] std::int64_t RowBytes(const TensorSpec& tensor, std::int64_t length);

// The size for which graphs and kernels are prepared.
struct BatchSize {
  std::int64_t samples = 0;
  std::int64_t length = 0;  // one of SampleSpec::cuts, or 0: not cut

  auto operator<=>(const BatchSize&) const = default;
};

// Positions of samples in a run, for random draws that depend on the epoch.
struct RunPosition {
  std::uint64_t seed = 0;           // of the job
  std::int64_t first = 0;           // run position (SampleOrder) of row 0 of a batch
  std::int64_t epoch_samples = 0;   // size of the data set; 0: not in a run
  std::int64_t update_samples = 0;  // samples per update; 0: not in a run
  // run positions of all rows, if they are not consecutive; else null
  const std::int64_t* rows = nullptr;

  [[nodiscard]] std::int64_t RowEpoch(std::size_t row) const {
    if (epoch_samples == 0) return 0;
    const std::int64_t at = rows == nullptr ? first + static_cast<std::int64_t>(row) : rows[row];
    return at / epoch_samples;
  }
};

// A batch of samples in memory of the caller.
struct BatchView {
  std::int64_t samples = 0;
  std::int64_t length = 0;              // see BatchSize
  std::span<void* const> tensors = {};  // in the order of the spec: [samples, shape...]
  const std::int64_t* ids = nullptr;    // [samples]: indices in the data set
  // Seed for random draws while reading samples, a function of the job's seed and of the update; 0
  // in evaluations.
  std::uint64_t augmentation_seed = 0;
  std::int64_t position = 0;  // index of the first sample in its update; 0 in evaluations
  RunPosition run = {};       // not set for texts grouped by length

  [[nodiscard]] BatchSize size() const { return {samples, length}; }

  // REQUIRES: T is the type of tensor i.
  template <typename T>
  [[nodiscard]] T* tensor(std::size_t i) const {
    return static_cast<T*>(tensors[i]);
  }
};

// Samples [first, first + count) of `batch`. Writes their addresses to `tensors`, of kMaxTensors
// elements.
[[nodiscard]] BatchView Rows(const SampleSpec& spec, const BatchView& batch, std::size_t first,
                             std::size_t count, std::span<void*> tensors);

// Bytes of one sample with its id in a BatchMemory.
[[nodiscard]] std::int64_t SampleBytes(const SampleSpec& spec);

// A batch that owns its memory; ids and values are initially 0. Pages that are never written take
// no physical memory.
class BatchMemory {
 public:
  BatchMemory(const SampleSpec& spec, std::int64_t samples);

  // Valid as long as this object lives, also after it was moved.
  [[nodiscard]] BatchView view() const {
    return {.samples = std::ssize(ids_), .tensors = pointers_, .ids = ids_.data()};
  }
  // Copies `batch` into this memory. REQUIRES: `batch` has this spec and at most as many samples as
  // this.
  BatchView Copy(const SampleSpec& spec, const BatchView& batch);
  [[nodiscard]] std::span<std::int64_t> ids() { return ids_; }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t tensor) const {
    return {memory_[tensor].data.get(), memory_[tensor].bytes};
  }
  // Bytes of all tensors.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct Memory {
    std::unique_ptr<std::byte, Free> data;
    std::size_t bytes = 0;
  };

  std::vector<std::int64_t> ids_;
  std::vector<Memory> memory_;  // by tensor
  std::vector<void*> pointers_;
};

// The limit of integers that a graph computes with, or reads from a table, as f32.

// f32 has all integers up to this one.
inline constexpr std::int64_t kLargestExactId = std::int64_t{1} << 24;

}  // namespace gaccd
