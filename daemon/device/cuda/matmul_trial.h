// MatmulTrial: the algorithms of one product, each tried on memory of its own before it is used.
#pragma once

#include <array>
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
  // With GELU its input is 1, which is exact where it is kept, and C is GELU(1) or its gradient.
  // An algorithm that splits k may leave out the last terms of a deep, thin product: a weight
  // gradient would lose samples in silence.
  // False, with a warning in MatmulChoices: it leaves out terms, or computes another GELU. False
  // without one: the library refuses it after all. Waits for the GPU. REQUIRES: not after
  // FillRandomly().
  Result<bool> IsSound(const cublasLtMatmulAlgo_t& algorithm);

  // Random operands: times on zeros would be those of a GPU that draws less power.
  Status FillRandomly();

  // The time of one product: TimeWork(). REQUIRES: IsSound() and FillRandomly().
  Result<double> Time(const cublasLtMatmulAlgo_t& algorithm, double best);

 private:
  struct Operand {
    DeviceBuffer buffer;
    std::byte* data = nullptr;  // inside the buffer
    DType dtype = DType::kF32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t stride = 0;  // elements from row to row

    [[nodiscard]] std::size_t pitch() const {  // the same in bytes
      return static_cast<std::size_t>(stride) * SizeOf(dtype);
    }
    [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(rows) * pitch(); }
  };

  // As many values at both ends of an operand as are compared: parts of rows.
  struct Ends {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::array<std::size_t, 2> first{};  // byte
  };

  explicit MatmulTrial(CublasLtProduct& product);
  Status Allocate();
  Status FillGapsOfA();
  static Ends LookedAt(const Operand& operand);
  // Ones in the last of the k terms of an operand, stored [k, others] or [others, k].
  Status SetLastTerm(const Operand& operand, bool k_is_rows);
  // Whether the values at both ends are that of these bits, or so many units off.
  Result<bool> Holds(const Operand& operand, std::uint32_t bits, std::uint32_t units);
  Status SetOnes(const Operand& operand);  // where Holds() looks
  Status ToStatus(cublasStatus_t status) const;

  CublasLtProduct* product_;
  cudaStream_t stream_;
  Operand a_, b_, c_, vector_, aux_;  // vector: bias, or column sums
};

}  // namespace gaccd
