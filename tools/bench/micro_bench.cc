// The pieces of one update, each on its own: where does the time of the step go?
//
//   build/release/tools/bench/micro_bench [--benchmark_filter=MicroStep]
//
// The model is 784-512-512-10 with 669,706 parameters.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/optim/measure.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/plan_text.h"
#include "daemon/replica/model.h"
#include "daemon/replica/replica.h"

namespace gaccd {
namespace {

constexpr std::int64_t kParameters = 669'706;
// Multiply-adds of a sample: three layers forward, their weight gradients, and the input gradients
// of all layers but the first.
constexpr double kFlopsPerSample = 2.0 * (3.0 * (784 * 512 + 512 * 512 + 512 * 10) - 784 * 512);

Result<Model> MakeMlp() {
  ModelSpec spec;
  spec.layer = {{"fc1", LinearSpec{784, 512}},
                {"relu1", ReluSpec{}},
                {"fc2", LinearSpec{512, 512}},
                {"relu2", ReluSpec{}},
                {"fc3", LinearSpec{512, 10}}};
  return Model::Make(spec, LabelledSample({784}, 10));
}

Status RunMicroSteps(benchmark::State& state, std::int64_t samples) {
  GACCD_ASSIGN_OR_RETURN(const Model model, MakeMlp());
  const auto elements = static_cast<std::size_t>(model.layout().size());
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(elements * sizeof(float), "gradient"));
  const std::span<float> gradients(reinterpret_cast<float*>(memory.data()), elements);
  GACCD_ASSIGN_OR_RETURN(auto replica, Replica::Create(model, gradients,
                                                       {.micro_batches = {samples},
                                                        .micro_steps_per_update = 1'000'000}));
  model.Initialize(1, replica->parameters());
  GACCD_RETURN_IF_ERROR(replica->ParametersChanged());

  std::vector<float> features(static_cast<std::size_t>(samples * 784));
  for (std::size_t i = 0; i < features.size(); ++i) {
    features[i] = static_cast<float>(i % 255) / 255.0F - 0.5F;
  }
  std::vector<std::int32_t> labels(static_cast<std::size_t>(samples));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 10);
  void* const tensors[] = {features.data(), labels.data()};
  const BatchView batch{.samples = samples, .tensors = tensors};
  bool first = true;
  for (auto _ : state) {
    const auto sums = replica->MicroStep(batch, 1.0F / static_cast<float>(samples), first);
    if (!sums.ok()) return sums.status();
    first = false;
  }
  state.SetItemsProcessed(state.iterations() * samples);
  const double flops =
      kFlopsPerSample * static_cast<double>(samples) * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  return Status::Ok();
}

void MicroStep(benchmark::State& state) {
  const Status status = RunMicroSteps(state, state.range(0));
  if (!status.ok()) state.SkipWithError(status.message().c_str());
}
BENCHMARK(MicroStep)->Arg(8)->Arg(31)->Arg(32)->Arg(62)->Arg(63)->Arg(64)->Arg(128);

void OptimizerStep(benchmark::State& state, const OptimizerSpec& spec) {
  std::vector<float> kept(static_cast<std::size_t>(StateElements(spec, kParameters)));
  auto optimizer = MakeOptimizer(spec, OptimizerRanges::One(kParameters), kept);
  if (!optimizer.ok()) {
    state.SkipWithError(optimizer.status().message().c_str());
    return;
  }
  std::vector<float> parameters(kParameters, 0.5F);
  const std::vector<float> gradient(kParameters, 1e-3F);
  for (auto _ : state) (*optimizer)->Step(parameters, gradient, 1e-3, 1.0F);
  state.SetItemsProcessed(state.iterations() * kParameters);
}
BENCHMARK_CAPTURE(OptimizerStep, sgd, OptimizerSpec{0.01, SgdSpec{}});
BENCHMARK_CAPTURE(OptimizerStep, momentum, OptimizerSpec{0.01, SgdSpec{.momentum = 0.9}});
BENCHMARK_CAPTURE(OptimizerStep, adamw, OptimizerSpec{0.01, AdamWSpec{}});

void Norm(benchmark::State& state) {
  const std::vector<float> gradient(kParameters, 1e-3F);
  for (auto _ : state) benchmark::DoNotOptimize(SumOfSquares(gradient));
  state.SetItemsProcessed(state.iterations() * kParameters);
}
BENCHMARK(Norm);

void PlanOf100000Ranks(benchmark::State& state) {
  const PlanRequest request{
      .nodes = 12'500, .gpus_per_node = 8, .micro_batch = 10, .target_batch = 1'234'567};
  for (auto _ : state) {
    const Result<Plan> plan = Plan::Make(request);
    if (!plan.ok()) {
      state.SkipWithError(plan.status().message().c_str());
      return;
    }
    benchmark::DoNotOptimize(PlanText(*plan, {}));
  }
}
BENCHMARK(PlanOf100000Ranks);

}  // namespace
}  // namespace gaccd

BENCHMARK_MAIN();
