// What a sample is made of, and a batch of samples in memory: the border between data and model.
//
// Names that models ask for: "features" f32, "tokens" i32 [T], "lengths" i32 [], "segments" i32
// [T]; and losses: "labels" i32 [] or [T], "weights" f32, one for every label, "targets" f32
// [width]. Of mixed samples (data/mixed_samples.h), in training in place of "labels" and "weights":
// "mixed_labels" i32 [2], "mixed_weights" f32 [2].
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

  [[nodiscard]] std::int64_t elements() const { return Elements(shape); }  // of one sample
  [[nodiscard]] std::int64_t bytes() const {                               // of one sample
    return elements() * static_cast<std::int64_t>(SizeOf(dtype));
  }
  bool operator==(const TensorSpec&) const = default;
};

// The label of a token that no loss and no metric counts, unless the job gives another.
inline constexpr std::int32_t kIgnoredLabel = -100;

// A sample has at most so many tensors.
inline constexpr std::size_t kMaxTensors = 8;

struct SampleSpec {
  std::vector<TensorSpec> tensors;  // names are unique
  std::int64_t classes = 0;     // > 0: "labels" are in [0, classes), or ignored_label if for tokens
  std::int64_t vocabulary = 0;  // > 0: "tokens" are in [0, vocabulary)
  std::int32_t ignored_label = kIgnoredLabel;
  // Ascending, each below the T of "tokens": what IsPerToken() of a batch may be cut to, where no
  // sample of it is longer. Empty: never.
  std::vector<std::int64_t> cuts = {};

  // Null: the samples have no tensor of this name.
  [[nodiscard]] const TensorSpec* Find(std::string_view name) const;
  bool operator==(const SampleSpec&) const = default;
};

// "features" with "labels" [], or with "targets" [width].
[[nodiscard]] SampleSpec LabelledSample(Shape features, std::int64_t classes);
[[nodiscard]] SampleSpec TargetSample(Shape features, std::int64_t width);

// "features f32 [28, 28], labels i32 [], 10 classes"
[[nodiscard]] std::string Describe(const SampleSpec& spec);

// The tensors with a value for every token of a text, padding among them: "tokens", "segments" and
// "labels" [T].
[[nodiscard]] bool IsPerToken(const TensorSpec& tensor);

// The spec of a batch that is cut to `length`; 0: of one that is not.
[[nodiscard]] SampleSpec CutTo(SampleSpec spec, std::int64_t length);
// Of one sample of such a batch.
[[nodiscard]] std::int64_t RowBytes(const TensorSpec& tensor, std::int64_t length);

// What graphs and their kernels are prepared for.
struct BatchSize {
  std::int64_t samples = 0;
  std::int64_t length = 0;  // one of SampleSpec::cuts, or 0: whole

  auto operator<=>(const BatchSize&) const = default;
};

// Where in a run samples are, for what is drawn by epoch.
struct RunPosition {
  std::uint64_t seed = 0;              // of the job
  std::int64_t first = 0;              // run position (SampleOrder) of row 0 of a batch
  std::int64_t epoch_samples = 0;      // of the data set; 0: not in a run
  std::int64_t update_samples = 0;     // of the update; 0: not in a run
  const std::int64_t* rows = nullptr;  // run positions of all rows, where they are not in a row

  [[nodiscard]] std::int64_t EpochOf(std::size_t row) const {
    if (epoch_samples == 0) return 0;
    const std::int64_t at = rows == nullptr ? first + static_cast<std::int64_t>(row) : rows[row];
    return at / epoch_samples;
  }
};

// Samples side by side in caller-owned memory.
struct BatchView {
  std::int64_t samples = 0;
  std::int64_t length = 0;              // as in BatchSize
  std::span<void* const> tensors = {};  // in the order of the spec: [samples, shape...]
  const std::int64_t* ids = nullptr;    // [samples]: their numbers in the data set
  // For what is drawn when samples are read: a function of the job's seed and of the update; 0 in
  // evaluations.
  std::uint64_t draw = 0;
  std::int64_t position = 0;  // of the first sample in its update, from 0; 0 in evaluations
  RunPosition run = {};       // not of texts grouped by length

  [[nodiscard]] BatchSize size() const { return {samples, length}; }

  // REQUIRES: T is the type of tensor i.
  template <typename T>
  [[nodiscard]] T* tensor(std::size_t i) const {
    return static_cast<T*>(tensors[i]);
  }
};

// Samples [first, first + count) of `batch`. Their addresses are in `tensors`, of kMaxTensors.
[[nodiscard]] BatchView Rows(const SampleSpec& spec, const BatchView& batch, std::size_t first,
                             std::size_t count, std::span<void*> tensors);

// Of one sample with its id in a BatchMemory.
[[nodiscard]] std::int64_t BytesOfSample(const SampleSpec& spec);

// A batch with memory of its own; ids and values are 0 at first. What is never written needs no
// physical memory.
class BatchMemory {
 public:
  BatchMemory(const SampleSpec& spec, std::int64_t samples);

  // Valid as long as this lives, also when it is moved.
  [[nodiscard]] BatchView view() const {
    return {.samples = std::ssize(ids_), .tensors = pointers_, .ids = ids_.data()};
  }
  // A copy of `batch`, in this memory. REQUIRES: `batch` has this spec and no more samples than
  // this.
  BatchView Copy(const SampleSpec& spec, const BatchView& batch);
  [[nodiscard]] std::span<std::int64_t> ids() { return ids_; }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t tensor) const {
    return {memory_[tensor].data.get(), memory_[tensor].bytes};
  }
  // Of all tensors.
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

}  // namespace gaccd
