// Dropout: y = x m, m = 0 with probability p, else 1 / (1 - p); dx = dy m: the same function. With
// `whole_samples`, m is the same for all elements of a sample: stochastic depth (Huang et al.
// 2016), where x is the output of a residual block. With `uniform`, m is uniform in (1 - p, 1 + p):
// the mean of y is then x, as in evaluation. m depends only on the seed, the number of the update,
// the layer, the id of the sample and, unless `whole_samples`, the position within the sample: not
// on the rank, the micro-batch or a restart. The backward recomputes m, so nothing is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/host_device.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

struct DropoutOptions {
  float probability = 0;    // p, in [0, 1); with `uniform` in [0, 1]
  std::uint64_t seed = 0;   // of the job
  std::uint64_t layer = 0;  // different for every dropout of a model
  bool whole_samples = false;
  bool uniform = false;
  // Dimensions of a cut sample (a text without its padding), outermost first: an element uses its
  // position in the whole sample. Empty: not cut.
  std::vector<CutDimension> cut = {};
};

// Positions of the elements of a cut sample in the whole sample, by rows of `width` elements; row i
// begins at First(i).
struct DropoutPlaces {
  static constexpr std::size_t kMost = 4;

  std::int64_t width = 0;
  std::int64_t counts[kMost] = {1, 1, 1, 1};  // sizes of the dimensions of rows, outermost first
  std::int64_t strides[kMost] = {};

  // elements: number of elements per sample. kConfig: `cut` has a different number of elements, a
  // dimension is larger than the whole, or more than kMost dimensions remain after joining
  // neighbours.
  [[nodiscard]] static Result<DropoutPlaces> Make(const std::vector<CutDimension>& cut,
                                                  std::int64_t elements);
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t First(std::int64_t row) const {
    std::int64_t first = 0;
    for (std::size_t d = kMost; d-- > 0; row /= counts[d]) first += row % counts[d] * strides[d];
    return first;
  }
};

// Inputs: x f32, bf16 or fp16, whose first dimension is a multiple of the samples (rows of a sample
// are contiguous); sample_ids i64 [samples]; update i64 [1].
class Dropout : public Function {
 public:
  explicit Dropout(const DropoutOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "dropout"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const DropoutOptions& options() const { return options_; }
  [[nodiscard]] DropoutMask MakeMask() const;  // without the layer

 private:
  DropoutOptions options_;
};

CpuMake MakeDropoutCpu;
CudaMake MakeDropoutCuda;
inline constexpr FunctionRow kDropoutRows[] = {
    {"dropout", MakeDropoutCpu, MakeDropoutCuda},
};

}  // namespace gaccd
