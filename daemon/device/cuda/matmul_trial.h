// MatmulTrial: the algorithms of one product, each tried on memory of its own before it is used.
#pragma once

#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_product.h"

namespace gaccd {

// Movable; used by the thread of the product's context. Both must outlive it.
class MatmulTrial {
 public:
  // Allocates the operands and binds the product to them; Unbind() the product afterwards. They are
  // aligned as badly as real ones may be. kOs: no memory.
  static Result<MatmulTrial> Create(CublasLtProduct& product);
  MatmulTrial(MatmulTrial&&) = default;
  ~MatmulTrial();  // waits for the GPU

  // Runs the product once and compares what it wrote. The operands are 0 but for the last of the k
  // terms, which is 1 x 1: every value of C and every column sum is 1, exactly, in every precision.
  // An algorithm that splits k may leave out the last terms of a deep, thin product: a weight
  // gradient would lose samples in silence.
  // False, with a warning in MatmulChoices: it leaves out terms. False without one: the library
  // refuses it after all. Waits for the GPU. REQUIRES: not after FillRandomly().
  Result<bool> IsSound(const cublasLtMatmulAlgo_t& algorithm);

  // Random operands: times on zeros would be those of a GPU that draws less power.
  Status FillRandomly();

  // The time of one product in microseconds, as a graph, which is how the engine replays it; given
  // up where it is far from `best`. REQUIRES: IsSound() and FillRandomly().
  Result<double> Time(const cublasLtMatmulAlgo_t& algorithm, double best);

 private:
  struct Operand {
    DeviceBuffer buffer;
    std::byte* data = nullptr;  // inside the buffer
    DType dtype = DType::kF32;
    std::int64_t values = 0;
  };

  explicit MatmulTrial(CublasLtProduct& product);
  Status Allocate();
  // Ones in the last of the k terms of an operand, stored [k, others] or [others, k].
  Status SetLastTerm(const Operand& operand, bool k_is_rows, std::int64_t others, std::int64_t k);
  Result<bool> IsAllOnes(const Operand& operand);
  Status ToStatus(cublasStatus_t status) const;
  template <typename Work>
  Result<double> Measure(const Work& work);

  CublasLtProduct* product_;
  cudaStream_t stream_;
  Operand a_, b_, c_, vector_;  // vector: bias, or column sums
  CudaEvent start_, stop_;
};

}  // namespace gaccd
