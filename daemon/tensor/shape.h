// Shapes of values: sizes by dimension, row-major, in elements.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

using Shape = std::vector<std::int64_t>;

// A dimension of which only the first `size` of `whole` indices are there.
struct CutDimension {
  std::int64_t size = 0;
  std::int64_t whole = 0;
};

using ImagePair = std::array<std::int64_t, 2>;  // of height and of width, of images or kernels

// Product of the sizes; 1 for a scalar. REQUIRES: no size negative, the product fits (see
// CheckShape).
[[nodiscard]] std::int64_t Elements(const Shape& shape);

// kConfig unless every size is >= 0 and the bytes of the whole are at most 2^48: more than any
// machine has, and so little that sums over thousands of values cannot overflow either.
Status CheckShape(const Shape& shape, DType dtype);

// "[32, 784]"
[[nodiscard]] std::string ToString(const Shape& shape);

struct ValueSpec {
  Shape shape;
  DType dtype = DType::kF32;
  // Of a matrix: elements from row to row, at least its columns. What lies between two rows, and
  // after the last one, may be written by who writes the rows, and is read by nobody. 0: nothing
  // lies there, as with all other values.
  std::int64_t row_stride = 0;

  [[nodiscard]] std::int64_t bytes() const {
    const std::int64_t elements = row_stride > 0 ? shape[0] * row_stride : Elements(shape);
    return elements * static_cast<std::int64_t>(SizeOf(dtype));
  }
  bool operator==(const ValueSpec&) const = default;
};

}  // namespace gaccd
