#include "tests/support/model_bench.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

float Uniform(std::uint64_t key, std::int64_t i) {
  const std::uint64_t bits = StreamValue(key, static_cast<std::uint64_t>(i));
  return static_cast<float>(static_cast<double>(bits >> 40) * 0x1p-23 - 1);
}

}  // namespace

ModelSpec Mlp(const std::vector<std::int64_t>& widths, LossKind loss) {
  ModelSpec spec;
  if (loss == LossKind::kMeanSquaredError) spec.loss = MeanSquaredErrorSpec{};
  for (std::size_t i = 1; i < widths.size(); ++i) {
    if (i > 1) spec.layer.push_back({StrCat("relu", i - 1), ReluSpec{}});
    spec.layer.push_back({StrCat("fc", i), LinearSpec{widths[i - 1], widths[i], true}});
  }
  return spec;
}

SampleSpec MakeSampleSpec(const std::vector<std::int64_t>& widths, LossKind loss) {
  return loss == LossKind::kSoftmaxCrossEntropy ? LabelledSample({widths.front()}, widths.back())
                                                : TargetSample({widths.front()}, widths.back());
}

Model MakeMlp(const std::vector<std::int64_t>& widths, LossKind loss) {
  auto model = Model::Make(Mlp(widths, loss), MakeSampleSpec(widths, loss));
  if (!model.ok()) {
    ADD_FAILURE() << model.status().message();
    std::abort();
  }
  return std::move(model).value();
}

Samples::Samples(const SampleSpec& sample, std::int64_t count, std::uint64_t seed)
    : spec(sample), size(count), ids(static_cast<std::size_t>(count)), views_(ids.size() + 1) {
  std::iota(ids.begin(), ids.end(), 0);
  const std::int64_t width = spec.tensors[0].elements();
  const std::int64_t target_width = spec.classes > 0 ? 0 : spec.tensors[1].elements();
  const std::uint64_t feature_key = StreamKey(seed, 0);
  const std::uint64_t target_key = StreamKey(seed, 1);
  for (std::int64_t i = 0; i < count * width; ++i) features.push_back(Uniform(feature_key, i));
  for (std::int64_t i = 0; i < count * target_width; ++i) targets.push_back(Uniform(target_key, i));
  for (std::int64_t i = 0; spec.classes > 0 && i < count; ++i) {
    const std::uint64_t bits = StreamValue(target_key, static_cast<std::uint64_t>(i));
    labels.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(spec.classes)));
  }
}

BatchView Samples::View(std::int64_t first, std::int64_t count) {
  void* second = spec.classes > 0 ? static_cast<void*>(labels.data() + first)
                                  : targets.data() + first * spec.tensors[1].elements();
  auto& view = views_[static_cast<std::size_t>(first)];
  view = {features.data() + first * spec.tensors[0].elements(), second};
  return {.samples = count, .tensors = view, .ids = ids.data() + first};
}

BenchTrainer::BenchTrainer(const Model& model, const ReplicaOptions& options, std::uint64_t seed,
                           Precision precision) {
  const auto elements = static_cast<std::size_t>(model.layout().size());
  gradient_memory_ = *HostBuffer::Allocate(elements * sizeof(float), "gradients");
  auto replica = Replica::Create(
      model, {reinterpret_cast<float*>(gradient_memory_.data()), elements}, options, precision);
  if (!replica.ok()) {
    ADD_FAILURE() << replica.status().message();
    std::abort();
  }
  replica_ = std::move(replica).value();
  model.Initialize(seed, replica_->parameters());
  ParametersChanged();
}

double BenchTrainer::MicroStep(const BatchView& batch, float weight, bool first) {
  const auto loss = replica_->MicroStep(batch, weight, first);
  EXPECT_TRUE(loss.ok()) << loss.status().message();
  return loss.ok() ? loss->loss_sum : 0;
}

void BenchTrainer::ParametersChanged() {
  const Status status = replica_->ParametersChanged();
  EXPECT_TRUE(status.ok()) << status.message();
}

void Descend(std::span<float> parameters, std::span<const float> gradients, float rate) {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * gradients[i];
}

}  // namespace gaccd
