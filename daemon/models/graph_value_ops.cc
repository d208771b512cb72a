#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/models/graph_ops.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/product/linear.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

namespace {

// y = f(x), elementwise.
GraphValue ByValue(GraphRecorder& r, std::shared_ptr<const Function> function) {
  GraphValue x = r.In(0);
  x.id = r.Apply(std::move(function), {x.id});
  return x;
}

template <ActivationKind kKind>
GraphValue RecordActivation(GraphRecorder& r) {
  return ByValue(r, std::make_shared<Activation>(kKind));
}

GraphValue RecordRelu(GraphRecorder& r) { return ByValue(r, std::make_shared<Relu>()); }

GraphValue RecordDetach(GraphRecorder& r) { return ByValue(r, std::make_shared<Detach>()); }

GraphValue RecordGelu(GraphRecorder& r) {
  return ByValue(r, std::make_shared<Activation>(r.Integer("tanh") != 0 ? ActivationKind::kGeluTanh
                                                                        : ActivationKind::kGelu));
}

GraphValue RecordLeakyRelu(GraphRecorder& r) {
  return ByValue(r, std::make_shared<NumberFunction>(NumberKind::kLeakyRelu, r.Number("slope")));
}

enum class Drops : std::uint8_t { kValues, kSamples, kUniform };

// For a value that does not depend on samples, such as a table of positions.
GraphValue SharedDropout(GraphRecorder& r, DropoutOptions options, GraphValue x) {
  x = InMemoryOrder(r.InOrder(x, RowMajor(x.rank())), x.sizes, RowMajor(x.rank()));
  if (!r.ok()) return {};
  const ValueId row = r.As(x.id, {1, Elements(x.sizes)});
  if (options.probability > 0) options.cut = r.AddDropped(x.sizes);
  x.id = r.recorder().SharedDropout(r.where(), options, row);
  return x;
}

template <Drops kDrops>
GraphValue RecordDropout(GraphRecorder& r) {
  DropoutOptions options{.probability = static_cast<float>(r.Number("p")),
                         .whole_samples = kDrops == Drops::kSamples,
                         .uniform = kDrops == Drops::kUniform};
  GraphValue x = r.In(0);
  const bool of_samples = std::ranges::any_of(x.sizes, [](std::int64_t size) { return size < 0; });
  if (!options.whole_samples && !of_samples && r.ok()) {
    return SharedDropout(r, std::move(options), std::move(x));
  }
  const auto samples = std::ranges::find_if(x.memory, [](std::int64_t size) { return size != 1; });
  const bool by_sample = samples != x.memory.end() && *samples < 0;
  if (!by_sample && r.ok()) {  // samples may be outermost in row-major order
    x = InMemoryOrder(r.InOrder(x, RowMajor(x.rank())), x.sizes, RowMajor(x.rank()));
  }
  const auto first = std::ranges::find_if(x.memory, [](std::int64_t size) { return size != 1; });
  if (!r.Expect(first != x.memory.end() && *first < 0,
                "expected the samples in the first dimension", x)) {
    return {};
  }
  // As rows, so that each sample has the same number of them.
  const std::int64_t rows = ActualSize(*first, r.recorder().samples());
  const ValueId id =
      r.As(x.id, {rows, Elements(r.recorder().shape(x.id)) / std::max<std::int64_t>(rows, 1)});
  if (options.probability > 0) {
    Shape pieces(first, x.memory.end());
    pieces[0] = -pieces[0];  // count per sample
    std::erase(pieces, 1);
    options.cut = r.AddDropped(options.whole_samples ? Shape() : std::move(pieces));
  }
  x.id = r.recorder().Dropout(r.where(), options, id);
  return x;
}

// y = f(rows of x), over the last dimension. keeps_f32: does not convert x to the type of
// activations.
GraphValue ByRow(GraphRecorder& r, std::shared_ptr<const Function> function,
                 bool keeps_f32 = false) {
  GraphValue x = r.In(0);
  if (!r.Expect(x.rank() >= 1 && x.sizes.back() > 0, "expected [.., width]", x)) return {};
  const std::int64_t width = x.sizes.back();
  const bool one_row = x.rank() == 1;  // of parameters
  if (one_row) x = WithRank(x, 2);
  if (!WithLast(x, width)) {
    x = InMemoryOrder(r.InOrder(x, RowMajor(x.rank())), x.sizes, RowMajor(x.rank()));
  }
  std::int64_t rows = 1;
  for (const std::int64_t size : std::span(x.sizes).first(x.rank() - 1)) {
    rows *= ActualSize(size, r.recorder().samples());
  }
  if (!r.ok()) return {};
  const ValueId matrix = r.As(x.id, {rows, width});
  std::vector<ValueId> inputs = {keeps_f32 ? matrix : r.AsActivation(matrix)};
  for (std::size_t i = 1; r.Has(i); ++i) inputs.push_back(r.In(i).id);
  const ValueId id = r.Apply(std::move(function), std::move(inputs));
  if (!r.ok()) return {};
  GraphValue y = *WithLast(x, r.recorder().shape(id)[1]);
  y.id = id;
  return one_row ? *MakeView(y, {y.sizes[1]}) : y;
}

// Products with a constant (cumsum() and others) need more precision than 16 bits.
GraphValue RecordLinear(GraphRecorder& r) {
  const auto order = r.Integer("in_out") != 0 ? WeightOrder::kInOut : WeightOrder::kOutIn;
  return ByRow(r, std::make_shared<Linear>(false, order), IsConstant(r.InputName(1)));
}

GraphValue RecordSoftmax(GraphRecorder& r) { return ByRow(r, std::make_shared<Softmax>()); }

GraphValue RecordLayerNorm(GraphRecorder& r) {
  return ByRow(r, std::make_shared<LayerNorm>(static_cast<float>(r.Number("eps"))));
}

GraphValue RecordRmsNorm(GraphRecorder& r) {
  return ByRow(r, std::make_shared<RmsNorm>(static_cast<float>(r.Number("eps"))));
}

GraphValue GatedBy(GraphRecorder& r, ActivationKind kind) {
  const GraphValue a = r.In(0);
  const GraphValue b = r.In(1);
  if (!r.ok()) return {};
  if (!r.Expect(a.sizes == b.sizes, StrCat("expected the shape ", ToString(a.sizes)), b)) return {};
  const DimensionOrder order = MemoryOrder(a).value_or(RowMajor(a.rank()));
  std::vector<ValueId> inputs = {r.AsActivation(r.Shaped(a, order)),
                                 r.AsActivation(r.Shaped(b, order))};
  return InMemoryOrder(r.Apply(std::make_shared<Gated>(kind), std::move(inputs)), a.sizes, order);
}

template <ActivationKind kKind>
GraphValue RecordGated(GraphRecorder& r) {
  return GatedBy(r, kKind);
}

GraphValue RecordGatedGelu(GraphRecorder& r) {
  return GatedBy(r, r.Integer("tanh") != 0 ? ActivationKind::kGeluTanh : ActivationKind::kGelu);
}

}  // namespace

std::vector<GraphOp> ValueOps() {
  constexpr double kLargest = 1e30;
  constexpr double kBelowOne = 1 - 1e-9;
  return {
      {"relu", 1, 0, 0, {}, RecordRelu},
      {"detach", 1, 0, 0, {}, RecordDetach},
      {"silu", 1, 0, 0, {}, RecordActivation<ActivationKind::kSilu>},
      {"tanh", 1, 0, 0, {}, RecordActivation<ActivationKind::kTanh>},
      {"sigmoid", 1, 0, 0, {}, RecordActivation<ActivationKind::kSigmoid>},
      {"hardswish", 1, 0, 0, {}, RecordActivation<ActivationKind::kHardswish>},
      {"gelu", 1, 0, 0, {Flag("tanh")}, RecordGelu},
      {"leaky_relu", 1, 0, 0, {Real("slope", -kLargest, kLargest)}, RecordLeakyRelu},
      {"dropout", 1, 0, 0, {Real("p", 0, kBelowOne)}, RecordDropout<Drops::kValues>},
      {"drop_samples", 1, 0, 0, {Real("p", 0, kBelowOne)}, RecordDropout<Drops::kSamples>},
      {"uniform_noise", 1, 0, 0, {Real("p", 0, 1)}, RecordDropout<Drops::kUniform>},
      {"linear", 1, 2, 1, {Flag("in_out")}, RecordLinear},
      {"softmax", 1, 0, 0, {}, RecordSoftmax},
      {"layer_norm", 1, 2, 0, {Epsilon()}, RecordLayerNorm, {1}},
      {"rms_norm", 1, 1, 0, {Epsilon()}, RecordRmsNorm, {1}},
      {"silu_mul", 2, 0, 0, {}, RecordGated<ActivationKind::kSilu>},
      {"sigmoid_mul", 2, 0, 0, {}, RecordGated<ActivationKind::kSigmoid>},
      {"gelu_mul", 2, 0, 0, {Flag("tanh")}, RecordGatedGelu},
  };
}

namespace {

GraphValue ByNumbers(GraphRecorder& r, NumberKind kind, double a = 0, double b = 0) {
  GraphValue x = r.In(0);
  x.id = r.Apply(std::make_shared<NumberFunction>(kind, a, b), {x.id});
  return x;
}

GraphValue RecordScale(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kAffine, r.Number("factor"), 0);
}

GraphValue RecordShift(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kAffine, 1, r.Number("amount"));
}

GraphValue RecordPower(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kPower, r.Number("exponent"));
}

template <NumberKind kKind>
GraphValue RecordFunction(GraphRecorder& r) {
  return ByNumbers(r, kKind);
}

template <NumberKind kKind>
GraphValue RecordLimits(GraphRecorder& r) {
  const double least = r.Number("least");
  const double most = r.Number("most");
  if (!r.Expect(least <= most, "expected `least` not above `most`")) return {};
  return ByNumbers(r, kKind, least, most);
}

GraphValue RecordEqual(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kEqual, r.Number("to"));
}

GraphValue RecordLess(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kLess, r.Number("than"));
}

GraphValue RecordNumbers(GraphRecorder& r) {
  GraphValue ids = r.In(0);
  ids.id = r.Apply(std::make_shared<IdFunction>(IdFunctionKind::kIdsToNumbers), {ids.id});
  return ids;
}

}  // namespace

std::vector<GraphOp> NumberOps() {
  constexpr double kLargest = 3e38;
  const auto any = [](std::string_view name) { return Real(name, -kLargest, kLargest); };
  return {
      {"scale", 1, 0, 0, {any("factor")}, RecordScale},
      {"shift", 1, 0, 0, {any("amount")}, RecordShift},
      {"power", 1, 0, 0, {any("exponent")}, RecordPower},
      {"hardsigmoid", 1, 0, 0, {}, RecordFunction<NumberKind::kHardsigmoid>},
      {"exp", 1, 0, 0, {}, RecordFunction<NumberKind::kExp>},
      {"expm1", 1, 0, 0, {}, RecordFunction<NumberKind::kExpm1>},
      {"log", 1, 0, 0, {}, RecordFunction<NumberKind::kLog>},
      {"log1p", 1, 0, 0, {}, RecordFunction<NumberKind::kLog1p>},
      {"softplus", 1, 0, 0, {}, RecordFunction<NumberKind::kSoftplus>},
      {"root", 1, 0, 0, {}, RecordFunction<NumberKind::kRoot>},
      {"sin", 1, 0, 0, {}, RecordFunction<NumberKind::kSin>},
      {"cos", 1, 0, 0, {}, RecordFunction<NumberKind::kCos>},
      {"erf", 1, 0, 0, {}, RecordFunction<NumberKind::kErf>},
      {"erfc", 1, 0, 0, {}, RecordFunction<NumberKind::kErfc>},
      {"floor", 1, 0, 0, {}, RecordFunction<NumberKind::kFloor>},
      {"clamp", 1, 0, 0, {any("least"), any("most")}, RecordLimits<NumberKind::kClamp>},
      {"hardtanh", 1, 0, 0, {any("least"), any("most")}, RecordLimits<NumberKind::kHardtanh>},
      {"equal", 1, 0, 0, {any("to")}, RecordEqual},
      {"less", 1, 0, 0, {any("than")}, RecordLess},
      {"numbers", 1, 0, 0, {}, RecordNumbers},
  };
}

}  // namespace gaccd
