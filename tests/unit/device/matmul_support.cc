#include "tests/unit/device/matmul_support.h"

#include <gtest/gtest.h>

#include <cstring>
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
      example.c.push_back(Rounded(sum, spec.c));
    }
    double sum = 0;
    for (std::int64_t p = 0; p < spec.k; ++p) sum += a(p);
    example.sums.push_back(sum);
  }
  return example;
}

std::vector<double> Expected(const MatmulExample& example) {
  std::vector<double> all = example.c;
  if (example.spec.column_sums) {
    all.insert(all.end(), example.sums.begin(), example.sums.end());
  }
  return all;
}

MatmulOperands::Operand MatmulOperands::Put(const std::vector<float>& values, DType dtype,
                                            std::size_t offset) {
  const std::vector<std::byte> bytes = InMemory(values, dtype);
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
  a_ = Put(example.a, spec_.ab, AlignmentOf(spec_.ab));
  b_ = Put(example.b, spec_.ab, AlignmentOf(spec_.ab));
  bias_ = Put(example.bias, spec_.c, kBiasAlignment);
  // What is not accumulated must not be read: 0 times NaN would be NaN.
  const auto size = static_cast<std::size_t>(spec_.m * spec_.n);
  c_ = Put(spec_.accumulate ? example.c_before : std::vector<float>(size, NAN), spec_.c,
           AlignmentOf(spec_.c));
  sums_ =
      Put(std::vector<float>(static_cast<std::size_t>(spec_.m), NAN), DType::kF32, kBiasAlignment);
}

Status MatmulOperands::Bind(MatmulCuda& matmul) const {
  return matmul.Bind(a_.data, b_.data, spec_.bias ? bias_.data : nullptr, c_.data,
                     spec_.column_sums ? reinterpret_cast<float*>(sums_.data) : nullptr);
}

std::vector<double> MatmulOperands::Results(cudaStream_t stream) const {
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::vector<double> all;
  Append(c_.data, spec_.m * spec_.n, spec_.c, &all);
  if (spec_.column_sums) Append(sums_.data, spec_.m, DType::kF32, &all);
  return all;
}

}  // namespace gaccd
