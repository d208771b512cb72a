#include "tests/unit/ops/gpu_bench.h"

#include <algorithm>
#include <utility>

#include "daemon/ops/cuda_kernels.h"
#include "tests/gpu/gpu_test.h"

namespace gaccd {

std::unique_ptr<CudaContext> MakeTestContext(const SdpaOpener& sdpa) {
  const CublasLtApi* api = CublasLtOfTest();
  if (api == nullptr) {
    auto loaded = LoadCublasLt();
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (!loaded.ok()) return nullptr;
    api = *loaded;
  }
  auto context =
      CudaContext::Create({.numerics = {.deterministic = true}, .cublaslt = api, .sdpa = sdpa});
  EXPECT_TRUE(context.ok()) << context.status().message();
  return context.ok() ? std::move(*context) : nullptr;
}

GpuBench::GpuBench(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
                   const Options& options)
    : context_(MakeTestContext(options.sdpa)) {
  Prepare(std::move(graph), layout, parameters, options);
}

void GpuBench::Prepare(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
                       const Options& options) {
  ASSERT_NE(context_, nullptr);
  if (options.fuse) FuseForCuda(graph);
  EXPECT_OK(CheckCudaKernels(graph));
  const std::vector<float> values(parameters.begin(), parameters.end());
  parameters_ = std::make_unique<GpuArray<float>>(values);
  gradients_ = std::make_unique<GpuArray<float>>(std::vector<float>(values.size(), 1e9F));
  if (options.copy != DType::kF32) {
    copy_ = std::make_unique<GpuArray<std::uint16_t>>(GpuFloats::Rounded(options.copy, values));
    context_->SetHalfCopy(parameters_->data(), static_cast<std::int64_t>(values.size()),
                          copy_->data());
  }
  kernels_ = MakeCudaKernels(*context_, &notes_);
  auto executor = Executor::Prepare(std::move(graph),
                                    {&layout, parameters_->data(), gradients_->data()}, *kernels_);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  executor_ = std::move(*executor);
  arena_ = std::make_unique<GpuArray<char>>(static_cast<std::size_t>(executor_->arena_bytes()) + 1);
  scratch_ =
      std::make_unique<GpuArray<char>>(static_cast<std::size_t>(executor_->scratch_bytes()) + 1);
  executor_->Attach(arena_->data(), scratch_->data());
}

GpuBench::GpuBench(GraphBench& host, const Options& options)
    : GpuBench(host.graph(), host.layout(), host.parameters(), options) {
  if (executor_ == nullptr) return;
  for (std::size_t v = 0; v < graph().values().size(); ++v) {
    const auto id = static_cast<ValueId>(v);
    if (graph().value(id).kind != ValueKind::kInput) continue;
    if (id == host.label_input()) {
      BindInput(id, host.labels());
    } else if (id == host.seed_input()) {
      BindInput(id, std::span(&GraphBench::kWeight, 1));
    } else if (host.ids().contains(id)) {
      BindInput(id, std::span<const std::int32_t>(host.ids().at(id)));
    } else if (host.longs().contains(id)) {
      BindInput(id, std::span<const std::int64_t>(host.longs().at(id)));
    } else {
      BindInput(id, host.input(id));
    }
  }
}

void GpuBench::BindBytes(ValueId id, std::span<const char> bytes) {
  auto& memory = inputs_[id];
  memory = std::make_unique<GpuArray<char>>(std::vector<char>(bytes.begin(), bytes.end()));
  executor_->BindInput(id, memory->data());
}

double GpuBench::ErrorOfGradients(GraphBench& host) const {
  const std::vector<float> all = gradients();
  double worst = 0;
  for (const FlatEntry& entry : host.layout().entries()) {
    const auto part = std::span<const float>(all).subspan(static_cast<std::size_t>(entry.offset),
                                                          static_cast<std::size_t>(entry.elements));
    worst = std::max(worst, RelativeError(part, host.gradient(entry.name)));
  }
  return worst;
}

void GpuBench::SetParameters(std::span<const float> parameters) {
  CopyToGpu(parameters_->data(), parameters.data(), parameters.size_bytes());
}

void GpuBench::Run(bool first) {
  const Status status = Enqueue(first);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace gaccd
