// The loss of a model: the tensors of a sample that it reads, and checks that the samples and the
// prediction fit it. All errors are kConfig.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/sample.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

inline constexpr std::string_view kLabels = "labels";
// Weights: one per label, if the samples have them.
inline constexpr std::string_view kWeights = "weights";
// Two labels per sample and their weights: replace label and weight in training.
inline constexpr std::string_view kMixedLabels = "mixed_labels";
inline constexpr std::string_view kMixedWeights = "mixed_weights";

// The tensor of the sample that the loss compares the prediction with; empty: none.
[[nodiscard]] std::string_view TargetTensor(LossKind loss);

// The shape of one sample, as users specify it.
[[nodiscard]] inline Shape SampleShape(const Shape& batch) {
  return {batch.begin() + 1, batch.end()};
}

// The samples have what the loss compares the prediction with.
[[nodiscard]] Status CheckLossFits(LossKind loss, const SampleSpec& sample);
// rows: rows of the prediction per sample. outputs: the job field that sets the number of outputs.
[[nodiscard]] Status CheckPredictionFits(LossKind loss, const SampleSpec& sample, std::int64_t rows,
                                         const Shape& row, std::string_view outputs);
// output: of a graph that computes the loss of each sample, [samples, 1], or the sum of its losses
// and their count, [samples, 2] of f32.
[[nodiscard]] Status CheckLossOutput(const Shape& output, DType dtype, std::int64_t samples);
// A contrastive loss needs one representation per sample, not per token.
[[nodiscard]] Status CheckOneRowEach(const Shape& rows, std::int64_t samples);

}  // namespace gaccd
