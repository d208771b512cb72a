#include "daemon/nn/simple_layers.h"

#include "daemon/autograd/add.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/pointwise/number_functions.h"

namespace gaccd::nn {

ValueId Flatten::operator()(Recorder& recorder, ValueId input) const {
  input = recorder.Plain(path(), input);
  const Shape shape = recorder.shape(input);
  Shape rows = {recorder.samples(), Reshape::kRest};
  if (rows[0] == 0 && !shape.empty())
    rows = {shape[0], Elements(Shape(shape.begin() + 1, shape.end()))};
  return Apply(recorder, std::make_shared<Reshape>(std::move(rows)), {input});
}

ValueId Activation::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<gaccd::Activation>(kind_), {input});
}

ValueId Relu::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<gaccd::Relu>(), {input});
}

ValueId LeakyRelu::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<NumberFunction>(NumberKind::kLeakyRelu, slope_), {input});
}

ValueId FirstRow::operator()(Recorder& recorder, ValueId x, std::int64_t length) const {
  return Apply(recorder, std::make_shared<PoolRows>(PoolKind::kFirst, length), {x});
}

ValueId AddResidual::operator()(Recorder& recorder, ValueId a, ValueId b) const {
  return Apply(recorder, std::make_shared<Add>(), {a, b});
}

}  // namespace gaccd::nn
