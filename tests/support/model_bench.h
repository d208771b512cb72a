// Small models, samples and replicas for tests.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/memory.h"
#include "daemon/replica/model.h"
#include "daemon/replica/replica.h"

namespace gaccd {

// Linear layers fc1, fc2, ... of these widths, with a ReLU between two of them.
[[nodiscard]] ModelSpec Mlp(const std::vector<std::int64_t>& widths, LossKind loss);

// The samples of `widths.front()` features that Mlp(widths, loss) takes.
[[nodiscard]] SampleSpec MakeSampleSpec(const std::vector<std::int64_t>& widths, LossKind loss);

// The model of both; fails the test if it is refused.
[[nodiscard]] Model MakeMlp(const std::vector<std::int64_t>& widths,
                            LossKind loss = LossKind::kSoftmaxCrossEntropy);

// Samples in memory, a function of the seed: sample i is the same however many there are.
struct Samples {
  Samples(const SampleSpec& spec, std::int64_t count, std::uint64_t seed);

  // Samples [first, first + count), in place; valid as long as this lives.
  [[nodiscard]] BatchView View(std::int64_t first, std::int64_t count);
  [[nodiscard]] BatchView All() { return View(0, size); }

  SampleSpec spec;
  std::int64_t size;
  std::vector<float> features;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
  std::vector<std::int64_t> ids;

 private:
  std::vector<std::array<void*, 2>> views_;  // by their first sample: View() does not allocate
};

// A replica with the gradient buffer that its owner has to bring, and weights set from the seed.
class BenchTrainer {
 public:
  BenchTrainer(const Model& model, const ReplicaOptions& options, std::uint64_t seed = 1,
               Precision precision = Precision::kF32);

  Replica& replica() { return *replica_; }
  std::span<float> parameters() { return replica_->parameters(); }
  std::span<float> gradients() { return replica_->gradients(); }

  // Both fail the test on an error.
  double MicroStep(const BatchView& batch, float weight, bool first);
  void ParametersChanged();

 private:
  HostBuffer gradient_memory_;
  std::unique_ptr<Replica> replica_;
};

// p -= rate * g: enough of an optimiser for tests of the engine.
void Descend(std::span<float> parameters, std::span<const float> gradients, float rate);

}  // namespace gaccd
