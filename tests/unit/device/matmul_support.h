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
  std::vector<double> sums;       // [m]
};

MatmulExample MakeExample(const MatmulCudaSpec& spec, unsigned seed);

// The operands of an example in memory of the GPU, each aligned as little as it may be.
class MatmulOperands {
 public:
  explicit MatmulOperands(const MatmulExample& example);
  Status Bind(MatmulCuda& matmul) const;
  // C, and the sums after it. Waits for `stream`.
  [[nodiscard]] std::vector<double> Results(cudaStream_t stream) const;

 private:
  struct Operand {
    DeviceBuffer buffer;
    std::byte* data = nullptr;
  };
  static Operand Put(const std::vector<float>& values, DType dtype, std::size_t offset);

  MatmulCudaSpec spec_;
  Operand a_, b_, bias_, c_, sums_;
};

// C and the sums, as Results() gives them.
[[nodiscard]] std::vector<double> Expected(const MatmulExample& example);

}  // namespace gaccd
