#include "daemon/ops/pointwise/combine.h"

#include <algorithm>
#include <array>
#include <limits>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Whether each size of `small` equals that of `large` or is 1.
bool IsBroadcastableTo(const Shape& small, const Shape& large) {
  return small.size() == large.size() && large.size() <= StridedNest::kMaxRank &&
         std::ranges::equal(small, large,
                            [](std::int64_t a, std::int64_t b) { return a == b || a == 1; });
}

Shape KeepEqualSizes(const Shape& shape, const Shape& to) {
  Shape kept;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (to[d] == shape[d]) kept.push_back(shape[d]);
  }
  return kept;
}

}  // namespace

std::string_view Combine::name() const {
  switch (kind_) {
    case CombineKind::kAdd:
      return "combine_add";
    case CombineKind::kMultiply:
      return "combine_multiply";
    case CombineKind::kDivide:
      return "combine_divide";
    case CombineKind::kSelect:
      return "combine_select";
  }
  return "";
}

OutputSpecs Combine::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the first input"));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[1], "the second input"));
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  Shape y = a;
  for (std::size_t d = 0; d < y.size() && d < b.size(); ++d) {
    if (y[d] == 1) y[d] = b[d];
  }
  const DType dtype = inputs[0].dtype == DType::kF32 ? inputs[1].dtype : inputs[0].dtype;
  const bool one_type = inputs[1].dtype == DType::kF32 || inputs[1].dtype == dtype;
  if (!IsBroadcastableTo(a, y) || !IsBroadcastableTo(b, y) || !one_type) {
    return Status(
        ErrorKind::kConfig,
        StrCat("expected equal sizes, or 1, in at most ", StridedNest::kMaxRank,
               " dimensions of each, and f32 or one other type, found ", Name(inputs[0].dtype), " ",
               ToString(a), " and ", Name(inputs[1].dtype), " ", ToString(b)));
  }
  return std::vector<ValueSpec>{{std::move(y), dtype}};
}

Status Combine::RecordSelectGradient(GradientScope& scope) const {
  if (scope.NeedsGradient(1)) {  // of exactly 0, for parameters that only comparisons read
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(
        1, std::make_shared<NumberFunction>(NumberKind::kLess, kLeast), {scope.input(1)}));
  }
  if (!scope.NeedsGradient(0)) return Status::Ok();
  const ValueSpec a = scope.graph().value(scope.input(0)).spec;
  const std::vector<ValueId> inputs = {scope.OutputGradient(0), scope.input(1)};
  const auto select = std::make_shared<Combine>(CombineKind::kSelect);
  if (a == scope.graph().value(scope.output(0)).spec) {
    return scope.SetInputGradient(0, select, inputs);
  }
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> selected, scope.graph().Apply(select, inputs));
  return scope.SetInputGradient(0, std::make_shared<ReduceSum>(a.shape, a.dtype), {selected[0]});
}

Status Combine::RecordDivideGradient(GradientScope& scope) const {
  Graph& graph = scope.graph();
  const auto multiply = std::make_shared<Combine>(CombineKind::kMultiply);
  const auto divide = std::make_shared<Combine>(CombineKind::kDivide);
  const auto negate = std::make_shared<NumberFunction>(NumberKind::kAffine, -1);
  const ValueSpec y = graph.value(scope.output(0)).spec;
  for (const std::size_t i : {0, 1}) {
    if (!scope.NeedsGradient(i)) continue;
    ValueId numerator = scope.OutputGradient(0);
    if (i == 1) {
      GACCD_ASSIGN_OR_RETURN(const auto product,
                             graph.Apply(multiply, {numerator, scope.output(0)}));
      GACCD_ASSIGN_OR_RETURN(const auto negative, graph.Apply(negate, {product[0]}));
      numerator = negative[0];
    }
    const ValueSpec input = graph.value(scope.input(i)).spec;
    if (input == y) {
      GACCD_RETURN_IF_ERROR(scope.SetInputGradient(i, divide, {numerator, scope.input(1)}));
      continue;
    }
    GACCD_ASSIGN_OR_RETURN(const auto quotient, graph.Apply(divide, {numerator, scope.input(1)}));
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(
        i, std::make_shared<ReduceSum>(input.shape, input.dtype), {quotient[0]}));
  }
  return Status::Ok();
}

Status Combine::Gradient(GradientScope& scope) const {
  if (kind_ == CombineKind::kSelect) return RecordSelectGradient(scope);
  if (kind_ == CombineKind::kDivide) return RecordDivideGradient(scope);
  const ValueId dy = scope.OutputGradient(0);
  for (const std::size_t i : {0, 1}) {
    if (!scope.NeedsGradient(i)) continue;
    const ValueSpec input = scope.graph().value(scope.input(i)).spec;
    std::vector<ValueId> inputs = {dy};
    if (kind_ == CombineKind::kMultiply) inputs.push_back(scope.input(1 - i));
    std::shared_ptr<const Function> function;
    if (input != scope.graph().value(scope.output(0)).spec) {
      function = std::make_shared<ReduceSum>(input.shape, input.dtype);
    } else if (kind_ == CombineKind::kMultiply) {
      function = std::make_shared<Combine>(kind_);
    } else {
      function = std::make_shared<Identity>();
    }
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(i, std::move(function), std::move(inputs)));
  }
  return Status::Ok();
}

OutputSpecs ReduceSum::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() != 2) GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  for (const ValueSpec& input : inputs) GACCD_RETURN_IF_ERROR(CheckFloat(input, "the input"));
  const Shape& x = inputs[0].shape;
  const DType type = inputs[0].dtype;
  const DType of_factor = inputs.back().dtype;
  if (type != of_factor && type != DType::kF32 && of_factor != DType::kF32) {
    return Status(ErrorKind::kConfig, StrCat("expected f32 or one other type, found ", Name(type),
                                             " and ", Name(of_factor)));
  }
  if (!IsBroadcastableTo(to_, x) || !IsBroadcastableTo(inputs.back().shape, x)) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected sizes of ", ToString(x), ", or 1, found ", ToString(to_),
                         inputs.size() > 1 ? StrCat(" and ", ToString(inputs[1].shape)) : ""));
  }
  return std::vector<ValueSpec>{{to_, dtype_}};
}

Status ReduceSum::Gradient(GradientScope& scope) const {
  const ValueSpec& x = scope.graph().value(scope.input(0)).spec;
  const bool is_loss = x.dtype == DType::kF32 && dtype_ == DType::kF64;  // its gradient is f32
  if (scope.inputs() != 1 || (x.dtype != dtype_ && !is_loss)) return Function::Gradient(scope);
  Rearrangement order{.from = KeepEqualSizes(x.shape, to_), .to = {}};
  int source = 0;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    order.to.push_back({.size = x.shape[d], .source = to_[d] == x.shape[d] ? source++ : -1});
  }
  return scope.SetInputGradient(0, std::make_shared<Rearrange>(std::move(order)),
                                {scope.OutputGradient(0)});
}

namespace {

template <CombineKind kKind>
float CombinePair(float a, float b) {
  if constexpr (kKind == CombineKind::kSelect) return b != 0 ? a : 0.0F;
  if constexpr (kKind == CombineKind::kDivide) return a / b;
  return kKind == CombineKind::kAdd ? a + b : a * b;
}

// Steps of 0 and 1 are constants of the loop.
template <CombineKind kKind>
GACCD_SIMD_CLONES void CombineRun(const float* a, std::int64_t a_step, const float* b,
                                  std::int64_t b_step, std::int64_t size, float* y) {
  if (a_step == 1 && b_step == 1) {
    for (std::int64_t i = 0; i < size; ++i) y[i] = CombinePair<kKind>(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0) {
    for (std::int64_t i = 0; i < size; ++i) y[i] = CombinePair<kKind>(a[i], *b);
  } else {
    for (std::int64_t i = 0; i < size; ++i) y[i] = CombinePair<kKind>(a[i * a_step], b[i * b_step]);
  }
}

template <CombineKind kKind>
KernelResult MakeCombine(const KernelRequest& request) {
  const StridedNest nest =
      CombineNest(request.inputs[0].shape, request.inputs[1].shape, request.outputs[0].shape);
  return MakeCall(request, [nest](const Call& c) {
    ForEachRun(nest, [&](const std::int64_t* at, const StridedNest::Dimension& run) {
      CombineRun<kKind>(c.in<float>(0) + at[0], run.steps[0], c.in<float>(1) + at[1], run.steps[1],
                        run.size, c.out<float>(0) + at[2]);
    });
    return Status::Ok();
  });
}

// sums[i] += x factor, with the given steps from one i to the next.
GACCD_SIMD_CLONES void AddProducts(const float* x, std::int64_t x_step, const float* factor,
                                   std::int64_t factor_step, std::int64_t size, double* sums) {
  if (x_step == 1 && factor_step == 1) {
    for (std::int64_t i = 0; i < size; ++i) {
      sums[i] += static_cast<double>(x[i]) * static_cast<double>(factor[i]);
    }
  } else if (x_step == 1 && factor_step == 0) {
    for (std::int64_t i = 0; i < size; ++i) {
      sums[i] += static_cast<double>(x[i]) * static_cast<double>(*factor);
    }
  } else {
    for (std::int64_t i = 0; i < size; ++i) {
      sums[i] += static_cast<double>(x[i * x_step]) * static_cast<double>(factor[i * factor_step]);
    }
  }
}

// The sum over a run.
double SumRun(const float* x, const float* factor, const StridedNest::Dimension& run) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  for (std::int64_t i = 0; i < run.size; ++i) {
    lanes[i % kLanes] +=
        static_cast<double>(x[i * run.steps[0]]) * static_cast<double>(factor[i * run.steps[1]]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
void Store(double sum, bool add, T* y) {
  *y = static_cast<T>(add ? static_cast<double>(*y) + sum : sum);
}

// Processes a tile of elements of y at a time; if y has the innermost dimension of x, all elements
// of the tile in each pass over the summed dimensions.
template <typename T>
void SumInto(const SumNests& nests, const float* x, const float* factor, bool add, T* y) {
  constexpr std::int64_t kTile = 256;
  const bool inner_is_summed =
      nests.summed.rank > 0 && nests.summed.dimensions[nests.summed.rank - 1].steps[0] == 1;
  ForEachRun(nests.kept, [&](const std::int64_t* at, const StridedNest::Dimension& run) {
    for (std::int64_t first = 0; first < run.size; first += kTile) {
      const std::int64_t size = std::min(kTile, run.size - first);
      std::array<double, kTile> sums{};
      const float* from = x + at[0] + first * run.steps[0];
      const float* times = factor + at[1] + first * run.steps[1];
      if (inner_is_summed) {
        for (std::int64_t i = 0; i < size; ++i) {
          ForEachRun(nests.summed, [&](const std::int64_t* in, const StridedNest::Dimension& one) {
            sums[static_cast<std::size_t>(i)] +=
                SumRun(from + i * run.steps[0] + in[0], times + i * run.steps[1] + in[1], one);
          });
        }
      } else {
        ForEachRun(nests.summed, [&](const std::int64_t* in, const StridedNest::Dimension& one) {
          for (std::int64_t j = 0; j < one.size; ++j) {
            AddProducts(from + in[0] + j * one.steps[0], run.steps[0],
                        times + in[1] + j * one.steps[1], run.steps[1], size, sums.data());
          }
        });
      }
      T* to = y + at[2] + first * run.steps[2];
      for (std::int64_t i = 0; i < size; ++i) {
        Store(sums[static_cast<std::size_t>(i)], add, to + i * run.steps[2]);
      }
    }
  });
}

}  // namespace

KernelResult MakeCombineCpu(const KernelRequest& request) {
  switch (static_cast<const Combine&>(request.function).kind()) {
    case CombineKind::kAdd:
      return MakeCombine<CombineKind::kAdd>(request);
    case CombineKind::kMultiply:
      return MakeCombine<CombineKind::kMultiply>(request);
    case CombineKind::kDivide:
      return MakeCombine<CombineKind::kDivide>(request);
    case CombineKind::kSelect:
      break;
  }
  return MakeCombine<CombineKind::kSelect>(request);
}

KernelResult MakeReduceSumCpu(const KernelRequest& request) {
  const Shape& x = request.inputs[0].shape;
  const bool has_factor = request.inputs.size() == 2;
  const Shape ones(x.size(), 1);
  const SumNests nests =
      MakeSumNests(x, has_factor ? request.inputs[1].shape : ones, request.outputs[0].shape);
  const bool in_f64 = request.outputs[0].dtype == DType::kF64;
  return MakeCall(request, [=](const Call& c) {
    constexpr float kOne = 1;
    const float* factor = has_factor ? c.in<float>(1) : &kOne;
    if (in_f64) {
      SumInto(nests, c.in<float>(0), factor, c.add[0], c.out<double>(0));
    } else {
      SumInto(nests, c.in<float>(0), factor, c.add[0], c.out<float>(0));
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
