// What the tests of matrix products share: operands on the GPU and the plain loop. All values are
// small multiples of 1/4, so that products and sums of a few hundred of them are exact in f32, and
// the results must be equal to the last bit, whatever the order of summation.
#pragma once

#include <vector>

#include "collectives/base/cuda.h"
#include "daemon/device/cuda/matmul_cuda.h"

namespace gaccd {

// Rounded to what `dtype` can hold.
[[nodiscard]] double Rounded(double value, DType dtype);

struct MatmulExample {
  MatmulCudaSpec spec;
  std::vector<float> a, b, bias;  // row-major as the spec says
  std::vector<float> c_before;    // [m, n], what accumulation finds
  std::vector<double> c;          // [m, n], rounded
  std::vector<double> sums;       // [m], or [n] of B
  std::vector<float> aux;         // [m, n]: GELU's input, as it is kept or found
};

MatmulExample MakeExample(const MatmulCudaSpec& spec, unsigned seed);

// The operands of an example in memory of the GPU, each aligned as little as it may be.
class MatmulOperands {
 public:
  explicit MatmulOperands(const MatmulExample& example);
  Status Bind(MatmulCuda& matmul) const;
  // C, and the sums or the kept aux after it. Waits for `stream`. Fails the test where something
  // was written between the rows of C.
  [[nodiscard]] std::vector<double> Results(cudaStream_t stream) const;

 private:
  struct Operand {
    DeviceBuffer buffer;
    std::byte* data = nullptr;
  };
  // Rows of `columns` values, `stride` apart (0: columns), with NaN between them.
  static Operand Put(const std::vector<float>& values, DType dtype, std::size_t offset,
                     std::int64_t columns = 1, std::int64_t stride = 0);

  MatmulCudaSpec spec_;
  Operand a_, b_, bias_, c_, sums_, aux_;
};

// C, the sums and the kept aux, as Results() gives them.
[[nodiscard]] std::vector<double> Expected(const MatmulExample& example);
// `found` is Expected(), C of GELU but for its last bit in 16 bits, 1e-6 in f32, and `extra`,
// relative to max(1, |c|).
void ExpectNear(const std::vector<double>& found, const MatmulExample& example, double extra = 0);

}  // namespace gaccd
