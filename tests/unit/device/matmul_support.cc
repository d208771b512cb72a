#include "tests/unit/device/matmul_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

std::vector<float> Quarters(std::int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<int> quarters(-8, 8);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = 0.25F * static_cast<float>(quarters(random));
  return values;
}

std::size_t Count(std::int64_t value) { return static_cast<std::size_t>(value); }

std::vector<std::byte> InMemory(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    WithFloat(dtype, [&](auto t) {
      const auto value = FromFloat<decltype(t)>(values[i]);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    });
  }
  return bytes;
}

void Append(const std::byte* from, std::int64_t count, DType dtype, std::vector<double>* out) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * SizeOf(dtype));
  ASSERT_EQ(cudaMemcpy(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* const at = bytes.data() + static_cast<std::size_t>(i) * SizeOf(dtype);
    WithFloat(dtype, [&](auto value) {
      std::memcpy(&value, at, sizeof value);
      out->push_back(ToFloat(value));
    });
  }
}

// GELU with tanh, or its slope.
double Gelu(double x, bool slope) {
  const double scale = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
  const double gate = 0.5 * (1 + t);
  if (!slope) return x * gate;
  return gate + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

double Rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  return WithFloat(dtype, [&](auto t) { return ToFloat(FromFloat<decltype(t)>(single)); });
}

MatmulExample MakeExample(const MatmulCudaSpec& spec, unsigned seed) {
  std::mt19937 random(seed);
  MatmulExample example{.spec = spec,
                        .a = Quarters(spec.m * spec.k, random),
                        .b = Quarters(spec.k * spec.n, random),
                        .bias = Quarters(spec.n, random),
                        .c_before = Quarters(spec.m * spec.n, random)};
  if (spec.gelu == MatmulGelu::kGradient) example.aux = Quarters(spec.m * spec.n, random);
  const auto at = [](const std::vector<float>& values, std::int64_t index) {
    return double{values[static_cast<std::size_t>(index)]};
  };
  for (std::int64_t i = 0; i < spec.m; ++i) {
    const auto a = [&](std::int64_t p) {
      return at(example.a, spec.transpose_a ? p * spec.m + i : i * spec.k + p);
    };
    for (std::int64_t j = 0; j < spec.n; ++j) {
      double sum = spec.accumulate ? at(example.c_before, i * spec.n + j) : 0;
      for (std::int64_t p = 0; p < spec.k; ++p) {
        sum += a(p) * at(example.b, spec.transpose_b ? j * spec.k + p : p * spec.n + j);
      }
      if (spec.bias) sum += at(example.bias, j);
      if (spec.relu && sum < 0) sum = 0;
      if (spec.gelu == MatmulGelu::kKeep) {
        example.aux.push_back(static_cast<float>(Rounded(sum, spec.c)));
      }
      if (spec.gelu == MatmulGelu::kGradient) {
        sum *= Gelu(at(example.aux, i * spec.n + j), true);
      } else if (spec.gelu != MatmulGelu::kNone) {
        sum = Gelu(sum, false);
      }
      example.c.push_back(Rounded(sum, spec.c));
    }
    if (spec.column_sums_of_b) continue;
    double sum = 0;
    for (std::int64_t p = 0; p < spec.k; ++p) sum += a(p);
    example.sums.push_back(sum);
  }
  for (std::int64_t j = 0; j < spec.n && spec.column_sums_of_b; ++j) {
    double sum = 0;
    for (std::int64_t p = 0; p < spec.k; ++p) sum += at(example.b, p * spec.n + j);
    example.sums.push_back(sum);
  }
  return example;
}

std::vector<double> Expected(const MatmulExample& example) {
  std::vector<double> all = example.c;
  if (example.spec.writes_sums()) all.insert(all.end(), example.sums.begin(), example.sums.end());
  if (example.spec.gelu == MatmulGelu::kKeep) {
    all.insert(all.end(), example.aux.begin(), example.aux.end());
  }
  return all;
}

void ExpectNear(const std::vector<double>& found, const MatmulExample& example, double extra) {
  const MatmulCudaSpec& spec = example.spec;
  const std::vector<double> expected = Expected(example);
  ASSERT_EQ(found.size(), expected.size()) << ToText(spec);
  const double unit = spec.c == DType::kF32 ? 1e-6 : spec.c == DType::kBF16 ? 0x1p-7 : 0x1p-10;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool exact = i >= example.c.size();  // aux
    const double size = std::abs(expected[i]);
    const double tolerance = exact ? 0 : unit * size + extra * std::max(1.0, size) + 1e-9;
    ASSERT_NEAR(found[i], expected[i], tolerance) << ToText(spec) << " at " << i;
  }
}

MatmulOperands::Operand MatmulOperands::Put(const std::vector<float>& values, DType dtype,
                                            std::size_t offset, std::int64_t columns,
                                            std::int64_t stride) {
  std::vector<float> rows;
  if (stride > 0) {
    for (auto row = values.begin(); row != values.end(); row += columns) {
      rows.insert(rows.end(), row, row + columns);
      rows.resize(rows.size() + Count(stride - columns), NAN);
    }
  }
  const std::vector<std::byte> bytes = InMemory(stride > 0 ? rows : values, dtype);
  Operand operand;
  operand.buffer = DeviceBuffer::Allocate(bytes.size() + offset, "operand").value();
  operand.data = operand.buffer.as<std::byte>() + offset;
  EXPECT_EQ(cudaMemcpy(operand.data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
            cudaSuccess);
  // cudaMemcpy from pageable memory may return before the GPU has the bytes.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return operand;
}

MatmulOperands::MatmulOperands(const MatmulExample& example) : spec_(example.spec) {
  a_ = Put(example.a, spec_.ab, OperandAlignment(spec_.ab), spec_.columns_a(), spec_.stride_a);
  b_ = Put(example.b, spec_.ab, OperandAlignment(spec_.ab));
  bias_ = Put(example.bias, spec_.c, kBiasAlignment);
  // What is not accumulated must not be read: 0 times NaN would be NaN.
  const auto size = static_cast<std::size_t>(spec_.m * spec_.n);
  c_ = Put(spec_.accumulate ? example.c_before : std::vector<float>(size, NAN), spec_.c,
           OperandAlignment(spec_.c), spec_.n, spec_.stride_c);
  if (spec_.has_aux()) {
    aux_ = Put(spec_.gelu == MatmulGelu::kGradient ? example.aux : std::vector<float>(size, NAN),
               spec_.c, OperandAlignment(spec_.c));
  }
  sums_ = Put(std::vector<float>(example.sums.size(), NAN), DType::kF32, kBiasAlignment);
}

Status MatmulOperands::Bind(MatmulCuda& matmul) const {
  return matmul.Bind(a_.data, b_.data, spec_.bias ? bias_.data : nullptr, c_.data,
                     spec_.writes_sums() ? reinterpret_cast<float*>(sums_.data) : nullptr,
                     aux_.data);
}

std::vector<double> MatmulOperands::Results(cudaStream_t stream) const {
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::vector<double> all;
  const std::int64_t stride = spec_.stride_c > 0 ? spec_.stride_c : spec_.n;
  for (std::int64_t i = 0; i < spec_.m; ++i) {
    std::vector<double> row;
    Append(c_.data + Count(i * stride) * SizeOf(spec_.c), stride, spec_.c, &row);
    all.insert(all.end(), row.begin(), row.begin() + spec_.n);
    for (std::int64_t j = spec_.n; j < stride; ++j) EXPECT_TRUE(std::isnan(row[Count(j)]));
  }
  if (spec_.writes_sums()) {
    Append(sums_.data, spec_.column_sums ? spec_.m : spec_.n, DType::kF32, &all);
  }
  if (spec_.gelu == MatmulGelu::kKeep) Append(aux_.data, spec_.m * spec_.n, spec_.c, &all);
  return all;
}

}  // namespace gaccd
