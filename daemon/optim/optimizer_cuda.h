// The optimiser on the GPU and the kernels before and after it. Everything is enqueued on `stream`,
// follows the UpdateControl in GPU memory, and never waits. The formulas are those of
// rules.h, update_control.h and measure.h without fused multiply-add: for the same gradient and
// clip factor, parameters and state are bit-identical to the CPU's (the norm itself is summed in
// another order). Used by one thread. Errors are those of CUDA unless stated otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

struct StepTiles;

// All pointers below are to GPU memory; floating-point arrays are aligned to 16 bytes.

// control->sums = or += {*loss_sum, *divisor, samples}. loss_sum null: 0; divisor null: samples.
// first: the first micro-step of the update.
Status AddToSums(cudaStream_t stream, UpdateControl* control, const double* loss_sum,
                 const double* divisor, std::int64_t samples, bool first);

// Norm and finite check of the reduced gradient, in double: the sum of squares of each block of
// FlatLayout::kBlock elements, then their sum in an order that depends only on their number; then
// the decision from the norm, control->sums and control->inputs. scratch:
// NormScratchBytes(elements) bytes of GPU memory, zeroed before the first use.
[[nodiscard]] std::size_t NormScratchBytes(std::int64_t elements);

// Ranks can share the first step: the result does not depend on how they divide the blocks. The
// sums are NaN after a step that made a parameter non-finite, which only its owner knows
// (control->parameters_not_finite).
Status BlockSquares(cudaStream_t stream, const float* gradient, std::int64_t elements,
                    const UpdateControl* control, double* squares);
// Computes the decision from the sums of all blocks, which are at SquaresIn(scratch). elements: of
// the whole gradient.
Status DecideFromSquares(cudaStream_t stream, std::int64_t elements, UpdateControl* control,
                         void* scratch);
[[nodiscard]] double* SquaresIn(void* scratch);

// For ranks that have different parts of a model: SumSquares() writes the sum over this part's
// blocks to *sum, without a decision; DecideFromParts() computes the decision from the sums of all
// parts, added in order.
Status SumSquares(cudaStream_t stream, std::int64_t elements, UpdateControl* control, double* sum,
                  void* scratch);
Status DecideFromParts(cudaStream_t stream, const double* squares, int parts,
                       UpdateControl* control);

// After a step: *parameter = min(*parameter, max_value).
Status LimitParameter(cudaStream_t stream, const UpdateControl* control, float* parameter,
                      float max_value);

// out[i] = in[i] converted to `dtype`, kBF16 or kFP16, rounded to nearest even.
Status CastTo(DType dtype, cudaStream_t stream, const float* in, std::int64_t elements, void* out);

class CudaOptimizer {
 public:
  // GPU memory owned by the caller: parameters, gradient, state (StateElements() zeroed values)
  // and, for bf16 and fp16 training, the copy of the parameters in that type (else null). elements:
  // of parameters, gradient and copy.
  struct Buffers {
    float* parameters = nullptr;
    const float* gradient = nullptr;
    float* state = nullptr;
    void* copy = nullptr;
    DType copy_type = DType::kBF16;
    std::int64_t elements = 0;
  };
  // kConfig, kInternal: as MakeOptimizer(); kConfig also: more than kMaxOptimizerGroups groups.
  static Result<std::unique_ptr<CudaOptimizer>> Create(const OptimizerSpec& spec,
                                                       const OptimizerRanges& ranges,
                                                       const Buffers& buffers);
  // Bytes of GPU memory that Create() allocates.
  [[nodiscard]] static std::int64_t TableBytes(const OptimizerRanges& ranges,
                                               std::int64_t elements);

  // Writes the factors of the next update to `inputs`. Increments updates().
  void Prepare(double lr, UpdateInputs* inputs);
  // One pass over all parameters; does nothing if the decision is idle.
  Status Step(cudaStream_t stream, UpdateControl* control);
  // See Optimizer. ExchangeAverages() also updates the 16-bit copy.
  Status Average(cudaStream_t stream, const UpdateControl* control);
  Status ExchangeAverages(cudaStream_t stream);

  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  CudaOptimizer(const OptimizerSpec& spec, const Buffers& buffers, std::int64_t trainable)
      : spec_(spec), buffers_(buffers), trainable_(trainable) {}
  Status MakeTiles(const OptimizerRanges& ranges);
  [[nodiscard]] StepTiles tiles() const;
  [[nodiscard]] float* averages() const;

  OptimizerSpec spec_;
  Buffers buffers_;
  std::int64_t trainable_;              // elements of all ranges
  std::vector<OptimizerGroup> groups_;  // in the order of the factors in the inputs
  DeviceBuffer tiles_;                  // empty: one group, nothing frozen
  std::int64_t tile_count_ = 0;
  std::int64_t updates_ = 0;
};

// Functions that enqueue the kernels: interface from optimizer_cuda.cu to optimizer_cuda.cc.

// The work of one thread block: `count` elements from `first` on, whose state begins at `state`,
// with the factors of `group`.
struct StepTile {
  std::int64_t first = 0;
  std::int64_t state = 0;
  std::int32_t count = 0;
  std::int32_t group = 0;
};
inline constexpr std::int64_t kStepTileElements = 1024;

// In GPU memory. Null: all elements from 0 on belong to group 0.
struct StepTiles {
  const StepTile* data = nullptr;
  std::int64_t count = 0;
};

// trainable: number of elements per state buffer; the second buffer follows the first.
Status EnqueueStep(cudaStream_t stream, const OptimizerSpec& spec,
                   const CudaOptimizer::Buffers& buffers, const StepTiles& tiles,
                   std::int64_t trainable, UpdateControl* control);

// `averages` has the layout of a state buffer. Does nothing if the decision is idle.
Status EnqueueAverage(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                      const StepTiles& tiles, const UpdateControl* control);
// Swaps parameters and averages, and updates the 16-bit copy of the parameters.
Status EnqueueExchange(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                       const StepTiles& tiles);

}  // namespace gaccd
