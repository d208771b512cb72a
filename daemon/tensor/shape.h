// Shapes of values: sizes by dimension, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

using Shape = std::vector<std::int64_t>;

// A dimension of which only the first `size` of `whole` indices exist.
struct CutDimension {
  std::int64_t size = 0;
  std::int64_t whole = 0;
};

using ImagePair = std::array<std::int64_t, 2>;  // height and width, of images or kernels

// Product of the sizes; 1 for a scalar. REQUIRES: no size is negative and the product does not
// overflow (see CheckShape).
[[nodiscard]] std::int64_t Elements(const Shape& shape);

// kConfig unless every size is >= 0 and the total is at most 2^48 bytes: more than any machine has,
// and small enough that sums over thousands of values do not overflow.
Status CheckShape(const Shape& shape, DType dtype);

// "[32, 784]"
[[nodiscard]] std::string ToString(const Shape& shape);

struct ValueSpec {
  Shape shape;
  DType dtype = DType::kF32;
  // For matrices: elements from row to row, at least the number of columns. Elements between rows
  // and after the last one may be overwritten by the writer of the rows and are never read. 0:
  // dense.
  std::int64_t row_stride = 0;

  [[nodiscard]] std::int64_t bytes() const {
    const std::int64_t elements = row_stride > 0 ? shape[0] * row_stride : Elements(shape);
    return elements * static_cast<std::int64_t>(SizeOf(dtype));
  }
  bool operator==(const ValueSpec&) const = default;
};

}  // namespace gaccd
