#include "tests/standin/host_gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "collectives/base/simd.h"
#include "daemon/tensor/float_types.h"
#include "tests/sanitized.h"

namespace gaccd::standin {
namespace {

// Keeps the upper 32 - `dropped` bits, rounded to nearest, ties to even. NaN and infinity stay.
float RoundMantissa(float value, unsigned dropped) {
  if (!std::isfinite(value)) return value;
  auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t odd = (bits >> dropped) & 1U;
  bits += (1U << (dropped - 1)) - 1U + odd;
  return std::bit_cast<float>(bits & ~((1U << dropped) - 1U));
}

float Load(const void* data, ValueType type, std::int64_t index) {
  if (type == ValueType::kF32) return static_cast<const float*>(data)[index];
  if (type == ValueType::kFp16) return ToFloat(static_cast<const Fp16*>(data)[index]);
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
  return std::bit_cast<float>(bits << 16);
}

void Store(void* data, ValueType type, std::int64_t index, float value) {
  if (type == ValueType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else if (type == ValueType::kFp16) {
    static_cast<Fp16*>(data)[index] = ToFp16(value);
  } else {
    const auto bits = std::bit_cast<std::uint32_t>(RoundToBf16(value));
    static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(bits >> 16);
  }
}

// op(matrix), [rows, columns], column-major without gaps; `by_rows`: row-major. Read as it is
// stored.
std::vector<float> Pack(const ConstMatrix& matrix, std::int64_t rows, std::int64_t columns,
                        bool by_rows, bool tf32) {
  const std::int64_t outer = matrix.transposed ? rows : columns;
  const std::int64_t inner = matrix.transposed ? columns : rows;
  const bool as_stored = matrix.transposed == by_rows;
  std::vector<float> packed(static_cast<std::size_t>(rows * columns));
  for (std::int64_t o = 0; o < outer; ++o) {
    float* const to = packed.data() + (as_stored ? o * inner : o);
    const std::int64_t step = as_stored ? 1 : outer;
    if (matrix.type == ValueType::kF32 && !tf32) {
      const float* const from = static_cast<const float*>(matrix.data) + o * matrix.ld;
      for (std::int64_t i = 0; i < inner; ++i) to[i * step] = from[i];
      continue;
    }
    for (std::int64_t i = 0; i < inner; ++i) {
      const float value = Load(matrix.data, matrix.type, o * matrix.ld + i);
      to[i * step] = tf32 ? RoundToTf32(value) : value;
    }
  }
  return packed;
}

// All values are private to this product: the sanitizers look at Pack() and Finish().
#if defined(GACCD_SANITIZED)
#define GACCD_PRIVATE GACCD_UNCHECKED
#else
#define GACCD_PRIVATE GACCD_SIMD_CLONES
#endif

// sums [m, n] += a [m, k] (column-major) b [k, n] (row-major) for k in [begin, end).
GACCD_PRIVATE void AddProduct(const float* __restrict__ a, const float* __restrict__ b,
                              float* __restrict__ sums, std::int64_t m, std::int64_t n,
                              std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kColumns = 4;
  for (std::int64_t column = 0; column < n; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, n - column);
    for (std::int64_t row = 0; row < m; row += kRows) {
      const std::int64_t rows = std::min(kRows, m - row);
      float tile[kColumns][kRows] = {};
      if (rows == kRows && columns == kColumns) {
        for (std::int64_t k = begin; k < end; ++k) {
          for (std::int64_t j = 0; j < kColumns; ++j) {
            const float factor = b[k * n + column + j];
            for (std::int64_t i = 0; i < kRows; ++i) tile[j][i] += a[k * m + row + i] * factor;
          }
        }
      } else {
        for (std::int64_t k = begin; k < end; ++k) {
          for (std::int64_t j = 0; j < columns; ++j) {
            const float factor = b[k * n + column + j];
            for (std::int64_t i = 0; i < rows; ++i) tile[j][i] += a[k * m + row + i] * factor;
          }
        }
      }
      for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t i = 0; i < rows; ++i) sums[(column + j) * m + row + i] += tile[j][i];
      }
    }
  }
}

#undef GACCD_PRIVATE

// Another order at every call, as the parts of a product on a GPU finish in another order.
bool SecondPartFirst() {
  static std::atomic<unsigned> calls{0};
  return calls.fetch_add(1, std::memory_order_relaxed) % 2 == 1;
}

// The product of packed operands, [m, n] column-major.
std::vector<float> Sums(const Product& p, const std::vector<float>& a,
                        const std::vector<float>& b) {
  const auto size = static_cast<std::size_t>(p.m * p.n);
  std::vector<float> sums(size);
  if (p.split == Split::kNone) {
    AddProduct(a.data(), b.data(), sums.data(), p.m, p.n, 0, p.k);
    return sums;
  }
  // The first part waits in the workspace, so two products that share it by mistake are wrong.
  const std::int64_t half = p.k / 2;
  std::vector<float> part(size);
  AddProduct(a.data(), b.data(), part.data(), p.m, p.n, 0, half);
  std::memcpy(p.workspace, part.data(), size * sizeof(float));
  AddProduct(a.data(), b.data(), sums.data(), p.m, p.n, half, p.k);
  // a + b is b + a, so only with C in between does the order show: see Finish().
  std::memcpy(part.data(), p.workspace, size * sizeof(float));
  if (p.split == Split::kInAnyOrder && p.beta != 0) {
    std::vector<float>& first = SecondPartFirst() ? sums : part;
    std::vector<float>& second = &first == &sums ? part : sums;
    for (std::int64_t column = 0; column < p.n; ++column) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        const auto at = static_cast<std::size_t>(column * p.m + row);
        const float c = Load(p.c.data, p.c.type, column * p.c.ld + row);
        first[at] = (p.beta * c + p.alpha * first[at]) + p.alpha * second[at];
      }
    }
    return std::move(first);
  }
  for (std::size_t i = 0; i < size; ++i) sums[i] += part[i];
  return sums;
}

void SumOverK(const Product& p, const std::vector<float>& a, const std::vector<float>& b) {
  const bool of_a = p.epilogue == Epilogue::kSumsOfA;
  const std::int64_t count = of_a ? p.m : p.n;
  const std::vector<float>& packed = of_a ? a : b;
  std::vector<float> sums(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < p.k; ++k) {
    for (std::int64_t i = 0; i < count; ++i) {
      sums[static_cast<std::size_t>(i)] += packed[static_cast<std::size_t>(k * count + i)];
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    Store(p.bias, p.d.type, i, sums[static_cast<std::size_t>(i)]);
  }
}

// GELU(x), or its slope there.
double Gelu(double x, bool slope) {
  const double scale = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  if (!slope) return 0.5 * x * (1 + t);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

// After the bias, of the value at column * ld + row of D and aux.
float Activate(const Product& p, float value, std::int64_t row, std::int64_t column) {
  const std::int64_t at = column * p.aux.ld + row;
  switch (p.epilogue) {
    case Epilogue::kRelu:
      return value > 0 ? value : 0;  // the worst that a device may do with a NaN
    case Epilogue::kGelu:
      if (p.aux.data != nullptr) Store(p.aux.data, p.aux.type, at, value);
      return static_cast<float>(Gelu(double{value}, false));
    case Epilogue::kGeluGradient:
      return value * static_cast<float>(Gelu(double{Load(p.aux.data, p.aux.type, at)}, true));
    default:
      return value;
  }
}

void Finish(const Product& p, const std::vector<float>& sums) {
  const bool scaled = p.split == Split::kInAnyOrder && p.beta != 0;
  for (std::int64_t column = 0; column < p.n; ++column) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      float value = sums[static_cast<std::size_t>(column * p.m + row)];
      if (!scaled) {
        value *= p.alpha;
        if (p.beta != 0) value += p.beta * Load(p.c.data, p.c.type, column * p.c.ld + row);
      }
      if (p.adds_bias) value += Load(p.bias, p.d.type, row);
      Store(p.d.data, p.d.type, column * p.d.ld + row, Activate(p, value, row, column));
    }
  }
}

}  // namespace

float RoundToTf32(float value) { return RoundMantissa(value, 13); }
float RoundToBf16(float value) { return RoundMantissa(value, 16); }

void Multiply(const Product& product) {
  const std::vector<float> a = Pack(product.a, product.m, product.k, false, product.tf32);
  const std::vector<float> b = Pack(product.b, product.k, product.n, true, product.tf32);
  if (product.epilogue == Epilogue::kSumsOfA || product.epilogue == Epilogue::kSumsOfB) {
    SumOverK(product, a, b);
  }
  Finish(product, Sums(product, a, b));
}

}  // namespace gaccd::standin
