// MatmulTrial: tests the algorithms of one matrix product on separate memory before one is used.
#pragma once

#include <array>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_product.h"

namespace gaccd {

// Movable; used by the thread of the product's context. Product and context must outlive it.
class MatmulTrial {
 public:
  // Allocates the operands and binds the product to them; call product.Unbind() afterwards. Their
  // alignment is the worst that real operands may have. kOs: no memory.
  static Result<MatmulTrial> Create(CublasLtProduct& product);
  MatmulTrial(MatmulTrial&&) = default;
  ~MatmulTrial();  // waits for the GPU

  // Runs the product once and compares its output with the expected values. The operands are 0
  // except for the last of the k terms, which is 1 x 1: every value of C and every column sum is
  // exactly 1 in every precision. With GELU its input is 1, exact if it is kept, and C is GELU(1)
  // or its gradient. An algorithm that splits k may leave out the last terms of a deep, thin
  // product; a weight gradient would then silently lose samples.
  // Returns false, with a warning in MatmulChoices: it leaves out terms, or computes another GELU.
  // Returns false without a warning: the library does not run it. Waits for the GPU. REQUIRES:
  // called before FillRandomly().
  Result<bool> IsSound(const cublasLtMatmulAlgo_t& algorithm);

  // Random operands: with zeros a GPU draws less power and is faster.
  Status FillRandomly();

  // The time of one product: TimeWork(). REQUIRES: IsSound() and FillRandomly().
  Result<double> Time(const cublasLtMatmulAlgo_t& algorithm, double best);

 private:
  struct Operand {
    DeviceBuffer buffer;
    std::byte* data = nullptr;  // inside `buffer`
    DType dtype = DType::kF32;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t stride = 0;  // elements from row to row

    [[nodiscard]] std::size_t pitch() const {  // the same in bytes
      return static_cast<std::size_t>(stride) * SizeOf(dtype);
    }
    [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(rows) * pitch(); }
  };

  // The values compared at both ends of an operand: parts of rows.
  struct Ends {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::array<std::size_t, 2> first{};  // byte offset
  };

  explicit MatmulTrial(CublasLtProduct& product);
  Status Allocate();
  Status FillRowGaps();
  static Ends CheckedEnds(const Operand& operand);
  // Sets the last of the k terms of an operand, stored [k, others] or [others, k], to ones.
  Status SetLastTerm(const Operand& operand, bool k_is_rows);
  // Whether the values at both ends equal `bits`, up to `units` units in the last place.
  Result<bool> Holds(const Operand& operand, std::uint32_t bits, std::uint32_t units);
  Status SetOnes(const Operand& operand);  // at the values compared by Holds()
  Status ToStatus(cublasStatus_t status) const;

  CublasLtProduct* product_;
  cudaStream_t stream_;
  Operand a_, b_, c_, vector_, aux_;  // vector: bias or column sums
};

}  // namespace gaccd
