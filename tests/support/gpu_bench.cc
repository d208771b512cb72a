#include "tests/support/gpu_bench.h"

#include <utility>

#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/status_matchers.h"

namespace gaccd {

std::unique_ptr<CudaContext> MakeTestContext(const DnnFactory& dnn, CudaNumerics numerics) {
  const CublasLtApi* api = CublasLtOfTest();
  if (api == nullptr) {
    auto loaded = ValueOrThrow(LoadCublasLt());
    api = loaded;
  }
  auto context = CudaContext::Create({.numerics = numerics, .cublaslt = api, .dnn = dnn});
  EXPECT_TRUE(context.ok()) << context.status().message();
  return context.ok() ? std::move(*context) : nullptr;
}

Status MakerTest::RunNode(CudaMaker make, const Function& function,
                          const std::vector<Operand>& inputs, const std::vector<void*>& outputs,
                          OutputMask add) {
  std::vector<ValueSpec> specs;
  std::vector<void*> pointers;
  for (const Operand& input : inputs) {
    specs.push_back(input.spec);
    pointers.push_back(input.data);
  }
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> inferred, function.Infer(specs));
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                         make({{function, specs, inferred, {}}, *context_, on_, notes_}));
  const GpuArray<char> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 1);
  kernel->Bind({pointers, outputs, scratch.data()});
  GACCD_RETURN_IF_ERROR(kernel->Run(add));
  return CudaStatus(cudaDeviceSynchronize(), "a kernel");
}

GpuBench::GpuBench(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
                   const Options& options)
    : context_(MakeTestContext(options.dnn, options.numerics)) {
  Prepare(std::move(graph), layout, parameters, options);
}

void GpuBench::Prepare(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
                       const Options& options) {
  ASSERT_NE(context_, nullptr);
  if (options.fuse) {
    FuseForCuda(graph);
  } else {  // the loss of tokens has only the one kernel
    Fuser fuser(graph);
    FuseTokenCrossEntropy(fuser);
    graph.ReplaceNodes(std::move(fuser).Finish());
  }
  for (std::size_t v = 0; options.dense && v < graph.values().size(); ++v) {
    graph.SetRowStride(static_cast<ValueId>(v), 0);
  }
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
  executor_ = ValueOrThrow(Executor::Prepare(
      std::move(graph), {&layout, parameters_->data(), gradients_->data()}, *kernels_));
  arena_ = std::make_unique<GpuArray<char>>(static_cast<std::size_t>(executor_->arena_bytes()) + 1);
  scratch_ =
      std::make_unique<GpuArray<char>>(static_cast<std::size_t>(executor_->scratch_bytes()) + 1);
  kept_ = std::make_unique<GpuArray<char>>(static_cast<std::size_t>(executor_->kept_bytes()) + 1);
  executor_->Attach(arena_->data(), scratch_->data(), kept_->data());
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

Status GpuBench::Enqueue(bool first) {
  const std::size_t sums = executor_->update_sums();
  if (sums == 0) return executor_->Run(first);
  for (std::size_t sum = 0; sum < sums; ++sum) {
    GACCD_RETURN_IF_ERROR(executor_->RunSegment(sum, first));
    const Executor::UpdateSumPlace place = executor_->update_sum(sum);
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(place.all, place.own, place.elements * sizeof(double),
                                   cudaMemcpyDeviceToDevice, context_->compute()),
                   "sum over the update"));
  }
  return executor_->RunSegment(sums, first);
}

void GpuBench::Run(bool first) {
  ASSERT_OK(Enqueue(first));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace gaccd
