// Sums over dimensions and combinations of two values in the sizes for which they have their own
// kernels, against f64.
#include <cmath>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/combine.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

struct Values {
  Values(const std::vector<float>& values, const Shape& shape, DType dtype, std::size_t shift = 0)
      : spec{shape, dtype}, host(Stored(dtype, values)), gpu(dtype, host, shift) {}
  Values(std::uint64_t seed, const Shape& shape, DType dtype, std::size_t shift = 0)
      : Values(RandomValues(seed, static_cast<std::size_t>(Elements(shape)), 1), shape, dtype,
               shift) {}
  [[nodiscard]] double At(std::int64_t i) const {
    return static_cast<double>(host[static_cast<std::size_t>(i)]);
  }

  ValueSpec spec;
  std::vector<float> host;
  GpuFloats gpu;
};

// Shapes of x, factor (empty: none) and y.
struct SumShapes {
  Shape x, factor, y;
};

std::vector<double> ComputeSums(const Values& x, const Values* factor, const Shape& y) {
  const Shape steps = BroadcastSteps(y);
  const Shape of_factor = BroadcastSteps(factor != nullptr ? factor->spec.shape : y);
  std::vector<double> sums(static_cast<std::size_t>(Elements(y)));
  for (std::int64_t i = 0; i < Elements(x.spec.shape); ++i) {
    std::int64_t to = 0;
    std::int64_t times = 0;
    std::int64_t rest = i;
    for (std::size_t d = y.size(); d-- > 0; rest /= x.spec.shape[d]) {
      to += rest % x.spec.shape[d] * steps[d];
      times += rest % x.spec.shape[d] * of_factor[d];
    }
    sums[static_cast<std::size_t>(to)] += x.At(i) * (factor != nullptr ? factor->At(times) : 1);
  }
  return sums;
}

class SumCuda : public MakerTest {
 protected:
  void Check(const SumShapes& shapes, DType x_type, DType factor_type, DType y_type,
             std::size_t shift = 0) {
    SCOPED_TRACE(StrCat(Name(x_type), " ", ToString(shapes.x), " ", Name(factor_type), " ",
                        ToString(shapes.factor), " to ", Name(y_type), " ", ToString(shapes.y),
                        " shift ", shift));
    const Values x(1, shapes.x, x_type, shift);
    std::vector<Operand> inputs = {{x.spec, x.gpu.data()}};
    const Values factor(2, shapes.factor, factor_type);
    if (!shapes.factor.empty()) inputs.push_back({factor.spec, factor.gpu.data()});
    const std::vector<double> expected =
        ComputeSums(x, shapes.factor.empty() ? nullptr : &factor, shapes.y);
    const ReduceSum function(shapes.y, y_type);
    const GpuFloats y(y_type, std::vector<float>(expected.size(), 3));
    for (const bool add : {false, true}) {
      if (add && y_type != DType::kF32) break;
      ASSERT_OK(RunNode(MakeReduceSumCuda, function, inputs, {y.data()},
                        add ? OutputMask().set(0) : OutputMask()));
      const std::vector<float> found = y.Values();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double wanted = (add ? 2 : 1) * expected[i];
        ASSERT_NEAR(static_cast<double>(found[i]), wanted,
                    2.1 * RoundingError(y_type) * std::abs(wanted) + 1e-11)
            << (add ? "added " : "") << i;
      }
    }
  }
};

// The first ones are summed in several parts, with two multiprocessors.
const SumShapes kSums[] = {
    {{3000, 96}, {3000, 96}, {1, 96}},        // the gradient of a layer scale
    {{3000, 96}, {}, {1, 96}},                //
    {{20, 70, 40}, {20, 1, 40}, {1, 1, 40}},  // the factor keeps two dimensions apart
    {{700, 3, 8}, {700, 3, 1}, {1, 1, 8}},    //
    {{2000, 7}, {2000, 7}, {1, 7}},
    {{90, 328}, {1, 328}, {1, 328}},  // tiles, the last of fewer columns
    {{5, 40, 2, 24}, {5, 40, 2, 24}, {5, 1, 2, 24}},
    {{40, 30, 16}, {40, 30, 16}, {1, 30, 16}},
    {{60000}, {60000}, {1}},
    {{200, 300}, {}, {1, 1}},
    {{3, 9000}, {1, 9000}, {3, 1}},
    {{2, 3, 16, 300}, {2, 3, 16, 300}, {1, 3, 1, 1}},
    {{70, 768}, {70, 1}, {70, 1}},
    {{70, 64}, {70, 64}, {70, 1}},
    {{300, 33}, {}, {300, 1}},
    {{50, 8}, {50, 8}, {50, 1}},                   // few: a thread
    {{3, 2, 5, 4, 3, 8}, {}, {1, 2, 1, 4, 1, 8}},  // many dimensions: a thread
};

TEST_F(SumCuda, EqualsF64) {
  for (const SumShapes& shapes : kSums) {
    for (const DType type : kFloatTypes) Check(shapes, type, type, DType::kF32);
    Check(shapes, DType::kBF16, DType::kF32, DType::kBF16);
    Check(shapes, DType::kF32, DType::kFP16, DType::kFP16);
    Check(shapes, DType::kBF16, DType::kBF16, DType::kF32, 1);  // not aligned
  }
}

// f32 would round a sum of more than 2^24.
TEST_F(SumCuda, SumsOfLossesAreF64) {
  constexpr std::size_t kLosses = 70000;
  const GpuFloats losses(DType::kF32, std::vector<float>(kLosses, 1001));
  const GpuArray<double> sum(std::vector<double>{-1});
  ASSERT_OK(RunNode(MakeReduceSumCuda, ReduceSum({1}, DType::kF64),
                    {{{{kLosses}, DType::kF32}, losses.data()}}, {sum.data()}));
  EXPECT_EQ(sum.Values()[0], 1001.0 * kLosses);
}

TEST_F(SumCuda, RefusesTwo16BitTypes) {
  const ReduceSum function({1}, DType::kF32);
  const std::vector<ValueSpec> inputs = {{{2}, DType::kBF16}, {{2}, DType::kFP16}};
  EXPECT_THAT(function.Infer(inputs),
              HasMessage("expected f32 or one other type, found bf16 and fp16"));
}

std::vector<float> MakeMask(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(Elements(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 3);
  return values;
}

class CombineCuda : public MakerTest {
 protected:
  template <typename Pair>
  void CheckPairs(CombineKind kind, const Values& a, const Values& b, const Pair& pair) {
    const Combine function(kind);
    const ValueSpec y = function.Infer(std::vector{a.spec, b.spec}).value()[0];
    const GpuFloats made(y.dtype, static_cast<std::size_t>(Elements(y.shape)));
    ASSERT_OK(RunNode(MakeCombineCuda, function, {{a.spec, a.gpu.data()}, {b.spec, b.gpu.data()}},
                      {made.data()}));
    const StridedNest nest = CombineNest(a.spec.shape, b.spec.shape, y.shape);
    std::vector<float> expected;
    for (std::int64_t i = 0; i < nest.elements; ++i) {
      std::int64_t at[StridedNest::kOperands] = {};
      nest.Place(i, at);
      expected.push_back(static_cast<float>(pair(a.At(at[0]), b.At(at[1]))));
    }
    EXPECT_EQ(made.Values(), Stored(y.dtype, expected));
  }
};

// What is not selected is infinite.
TEST_F(CombineCuda, UnselectedValuesHaveNoEffect) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Values a(std::vector{infinite, 2.0F, std::nanf(""), 3.0F}, {2, 2}, DType::kF32);
  const Values mask(std::vector{0.0F, 1.0F}, {1, 2}, DType::kF32);
  CheckPairs(CombineKind::kSelect, a, mask, [](double x, double y) { return y != 0 ? x : 0; });
}

TEST_F(CombineCuda, VectorsOfEveryKind) {
  const std::pair<Shape, Shape> shapes[] = {{{70, 96}, {1, 96}},      {{70, 96}, {70, 96}},
                                            {{5, 7, 16}, {5, 1, 16}}, {{5, 7, 16}, {5, 7, 1}},
                                            {{5, 1, 16}, {1, 7, 1}},  {{5, 9}, {1, 9}}};
  const std::pair<DType, DType> types[] = {
      {DType::kF32, DType::kF32},  {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32},
      {DType::kF32, DType::kBF16}, {DType::kFP16, DType::kFP16}, {DType::kFP16, DType::kF32}};
  for (const auto& [left, right] : shapes) {
    for (const auto& [a_type, b_type] : types) {
      for (const std::size_t shift : {0, 1}) {
        SCOPED_TRACE(StrCat(Name(a_type), " ", ToString(left), " ", Name(b_type), " ",
                            ToString(right), " shift ", shift));
        const Values a(1, left, a_type);
        const Values b(2, right, b_type, shift);
        CheckPairs(CombineKind::kMultiply, a, b, [](double x, double y) { return x * y; });
        CheckPairs(CombineKind::kDivide, a, b, [](double x, double y) { return x / y; });
        const Values mask(MakeMask(right), right, b_type, shift);
        CheckPairs(CombineKind::kSelect, a, mask,
                   [](double x, double y) { return y != 0 ? x : 0; });
      }
    }
  }
}

}  // namespace
}  // namespace gaccd
