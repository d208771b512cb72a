#include "daemon/models/graph_op_families.h"
#include "daemon/ops/activations.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/leaky_relu.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/multiply.h"
#include "daemon/ops/relu.h"

namespace gaccd {
namespace {

// y = f(x), value by value.
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

GraphValue RecordGelu(GraphRecorder& r) {
  return ByValue(r, std::make_shared<Activation>(r.Integer("tanh") != 0 ? ActivationKind::kGeluTanh
                                                                        : ActivationKind::kGelu));
}

GraphValue RecordLeakyRelu(GraphRecorder& r) {
  return ByValue(r, std::make_shared<LeakyRelu>(static_cast<float>(r.Number("slope"))));
}

GraphValue RecordScale(GraphRecorder& r) {
  return ByValue(r, std::make_shared<Multiply>(r.Number("factor")));
}

GraphValue RecordDropout(GraphRecorder& r) {
  GraphValue x = r.In(0);
  const bool by_sample = !x.memory.empty() && x.memory[0] < 0;
  if (!r.Expect(by_sample, "expected the samples in the first dimension", x)) return {};
  x.id = r.recorder().Dropout(r.where(), r.Number("p"), x.id);
  return x;
}

// y = f(rows of x), over the last dimension.
GraphValue ByRow(GraphRecorder& r, std::shared_ptr<const Function> function) {
  GraphValue x = r.In(0);
  if (!r.Expect(x.rank() >= 2 && x.sizes.back() > 0, "expected [samples, .., width]", x)) return {};
  const std::int64_t width = x.sizes.back();
  if (!WithLast(x, width)) {
    x = LyingAs(r.InOrder(x, RowMajor(x.rank())), x.sizes, RowMajor(x.rank()));
  }
  std::int64_t rows = 1;
  for (const std::int64_t size : std::span(x.sizes).first(x.rank() - 1)) {
    rows *= CountOf(size, r.recorder().samples());
  }
  std::vector<ValueId> inputs = {r.As(x.id, {rows, width})};
  for (std::size_t i = 1; r.Has(i); ++i) inputs.push_back(r.In(i).id);
  const ValueId id = r.Apply(std::move(function), std::move(inputs));
  if (!r.ok()) return {};
  GraphValue y = *WithLast(x, r.recorder().shape(id)[1]);
  y.id = id;
  return y;
}

GraphValue RecordLinear(GraphRecorder& r) {
  return ByRow(r, std::make_shared<Linear>(
                      false, r.Integer("in_out") != 0 ? WeightOrder::kInOut : WeightOrder::kOutIn));
}

GraphValue RecordLayerNorm(GraphRecorder& r) {
  return ByRow(r, std::make_shared<LayerNorm>(static_cast<float>(r.Number("eps"))));
}

}  // namespace

std::vector<GraphOp> ValueOps() {
  constexpr double kLargest = 1e30;
  constexpr double kBelowOne = 1 - 1e-9;
  return {
      {"relu", 1, 0, 0, {}, RecordRelu},
      {"silu", 1, 0, 0, {}, RecordActivation<ActivationKind::kSilu>},
      {"tanh", 1, 0, 0, {}, RecordActivation<ActivationKind::kTanh>},
      {"sigmoid", 1, 0, 0, {}, RecordActivation<ActivationKind::kSigmoid>},
      {"hardswish", 1, 0, 0, {}, RecordActivation<ActivationKind::kHardswish>},
      {"gelu", 1, 0, 0, {Flag("tanh")}, RecordGelu},
      {"leaky_relu", 1, 0, 0, {Real("slope", -kLargest, kLargest)}, RecordLeakyRelu},
      {"scale", 1, 0, 0, {Real("factor", -kLargest, kLargest)}, RecordScale},
      {"dropout", 1, 0, 0, {Real("p", 0, kBelowOne)}, RecordDropout},
      {"linear", 1, 2, 1, {Flag("in_out")}, RecordLinear},
      {"layer_norm", 1, 2, 0, {Epsilon()}, RecordLayerNorm, {1}},
  };
}

}  // namespace gaccd
