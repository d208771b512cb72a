#include "daemon/models/dual_encoder.h"

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/cast.h"

namespace gaccd {
namespace {

constexpr std::string_view kScaleName = "logit_scale";

}  // namespace

DualEncoder::Tower::Tower(const nn::Scope& scope, const TowerSpec& spec, std::int64_t width)
    : Module(scope),
      input_(spec.input),
      layers_(scope, spec.layer),
      projection_(scope / "projection", {.in = layers_.widths().out, .out = width, .bias = false}) {
}

ValueId DualEncoder::Tower::operator()(nn::Recorder& recorder) const {
  const ValueId features = layers_(recorder, recorder.Input(input_));
  recorder.EndBlock(features);
  ValueId row = projection_(recorder, features);
  if (recorder.activations() != DType::kF32) {  // the loss compares f32
    row = Apply(recorder, std::make_shared<Cast>(DType::kF32), {row});
  }
  return Apply(recorder, std::make_shared<L2Normalize>(), {row});
}

DualEncoder::DualEncoder(const DualEncoderSpec& spec)
    : spec_(spec),
      a_(nn::Scope(parameters_, "a"), spec.a, spec.width),
      b_(nn::Scope(parameters_, "b"), spec.b, spec.width) {
  parameters_.Declare({.name = std::string(kScaleName),
                       .shape = {1},
                       .initializer = nn::Constant(-std::log(spec.temperature))});
}

ValueId DualEncoder::Record(nn::Recorder& recorder) const {
  const ValueId a = a_(recorder);
  const ValueId b = b_(recorder);
  return recorder.Apply("dual_encoder", std::make_shared<Concat>(), {a, b});
}

SampleSpec DualEncoder::ExampleSample() const {
  SampleSpec sample;
  for (const Tower* tower : {&a_, &b_}) {
    const SampleSpec one = tower->layers().ExampleSample(tower->input());
    if (sample.Find(tower->input()) == nullptr) sample.tensors.push_back(one.tensors[0]);
    if (one.vocabulary > 0) sample.LimitVocabulary(tower->input(), one.vocabulary);
  }
  return sample;
}

std::optional<PairSpec> DualEncoder::pair() const {
  return PairSpec{.width = spec_.width, .log_scale = kScaleName, .max_scale = spec_.max_scale};
}

std::string DualEncoder::Describe() const {
  return StrCat("dual encoder, ", a_.layers().Describe(), "-", spec_.width, " and ",
                b_.layers().Describe(), "-", spec_.width);
}

}  // namespace gaccd
