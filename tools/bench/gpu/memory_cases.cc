// The kernels whose time is that of moving memory: copies, AdamW, the norm, cross-entropy.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/tensor/float_types.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr int kRepeats = 20;

template <typename T>
Result<T> Read(const void* device) {
  T value{};
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), "result"));
  return value;
}

class CopyCase final : public GpuCase {
 public:
  CopyCase(CudaStream stream, DeviceBuffer from, DeviceBuffer to, bool by_kernel)
      : stream_(std::move(stream)),
        from_(std::move(from)),
        to_(std::move(to)),
        by_kernel_(by_kernel) {}

  Result<double> Run() override {
    return MedianSeconds(stream_.get(), kRepeats, [&] {
      if (by_kernel_) {
        return EnqueueCopy(stream_.get(), from_.data(), to_.data(),
                           static_cast<std::int64_t>(from_.bytes()));
      }
      return CudaStatus(cudaMemcpyAsync(to_.data(), from_.data(), from_.bytes(),
                                        cudaMemcpyDeviceToDevice, stream_.get()),
                        "copy");
    });
  }
  [[nodiscard]] double bytes() const override { return 2.0 * static_cast<double>(from_.bytes()); }

 private:
  CudaStream stream_;
  DeviceBuffer from_;
  DeviceBuffer to_;
  bool by_kernel_;
};

// Memory of an optimiser of so many parameters, all random.
struct OptimizerMemory {
  DeviceBuffer parameters, gradient, state, bf16_copy, control, scratch;
};

Result<OptimizerMemory> MakeOptimizerMemory(std::int64_t elements, bool bf16) {
  const auto count = static_cast<std::size_t>(elements);
  OptimizerMemory memory;
  GACCD_ASSIGN_OR_RETURN(memory.parameters, RandomBuffer(4 * count, false, "parameters"));
  GACCD_ASSIGN_OR_RETURN(memory.gradient, RandomBuffer(4 * count, false, "gradient"));
  // Zeros, as at the start: a negative second moment would be no state. The steps fill it.
  GACCD_ASSIGN_OR_RETURN(memory.state, DeviceBuffer::Allocate(8 * count, "state"));
  if (bf16) {
    GACCD_ASSIGN_OR_RETURN(memory.bf16_copy, DeviceBuffer::Allocate(2 * count, "bf16 copy"));
  }
  GACCD_ASSIGN_OR_RETURN(memory.scratch,
                         DeviceBuffer::Allocate(NormScratchBytes(elements), "scratch"));
  UpdateControl control;
  control.inputs.effective_batch = 1;
  control.sums.samples = 1;
  GACCD_ASSIGN_OR_RETURN(memory.control, BufferOfOne(&control, sizeof control, "control"));
  return memory;
}

class AdamWCase final : public GpuCase {
 public:
  AdamWCase(CudaStream stream, OptimizerMemory memory, std::int64_t elements)
      : stream_(std::move(stream)), memory_(std::move(memory)), elements_(elements) {}

  Status Prepare() {
    GACCD_ASSIGN_OR_RETURN(
        optimizer_,
        CudaOptimizer::Create({.lr = 1e-3, .kind = AdamWSpec{}}, OptimizerRanges::One(elements_),
                              {.parameters = memory_.parameters.as<float>(),
                               .gradient = memory_.gradient.as<float>(),
                               .state = memory_.state.as<float>(),
                               .copy = memory_.bf16_copy.data(),
                               .elements = elements_}));
    GACCD_ASSIGN_OR_RETURN(UpdateControl control, Read<UpdateControl>(memory_.control.data()));
    optimizer_->Prepare(1e-3, &control.inputs);
    return CudaStatus(
        cudaMemcpy(memory_.control.data(), &control, sizeof control, cudaMemcpyHostToDevice),
        "control");
  }
  Result<double> Run() override {
    return MedianSeconds(stream_.get(), kRepeats, [&] {
      return optimizer_->Step(stream_.get(), memory_.control.as<UpdateControl>());
    });
  }
  // Read: parameter, gradient, two moments; written: parameter, two moments, bf16 copy.
  [[nodiscard]] double bytes() const override {
    return static_cast<double>(elements_) * (memory_.bf16_copy.data() != nullptr ? 30 : 28);
  }

 private:
  CudaStream stream_;
  OptimizerMemory memory_;
  std::int64_t elements_;
  std::unique_ptr<CudaOptimizer> optimizer_;
};

class NormCase final : public GpuCase {
 public:
  NormCase(CudaStream stream, OptimizerMemory memory, std::int64_t elements)
      : stream_(std::move(stream)), memory_(std::move(memory)), elements_(elements) {}

  Result<double> Run() override {
    const auto measure = [this]() -> Status {
      auto* const out = memory_.control.as<UpdateControl>();
      void* const scratch = memory_.scratch.data();
      GACCD_RETURN_IF_ERROR(BlockSquares(stream_.get(), memory_.gradient.as<float>(), elements_,
                                         out, SquaresIn(scratch)));
      return DecideFromSquares(stream_.get(), elements_, out, scratch);
    };
    GACCD_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream_.get(), kRepeats, measure));
    GACCD_ASSIGN_OR_RETURN(const UpdateControl control,
                           Read<UpdateControl>(memory_.control.data()));
    norm_ = control.decision.norm;
    return seconds;
  }
  [[nodiscard]] double bytes() const override { return 4.0 * static_cast<double>(elements_); }
  [[nodiscard]] double proof() const override { return norm_; }

 private:
  CudaStream stream_;
  OptimizerMemory memory_;
  std::int64_t elements_;
  double norm_ = 0;
};

// The token loss as models run it: its gradient replaces the logits.
class EntropyCase final : public GpuCase {
 public:
  struct Memory {
    DeviceBuffer logits, labels, weight, results, sums;
  };
  EntropyCase(CudaStream stream, Memory memory, Matrix size, bool bf16, int multiprocessors)
      : stream_(std::move(stream)),
        memory_(std::move(memory)),
        size_(size),
        bf16_(bf16),
        on_{stream_.get(), multiprocessors, GridSums::At(memory_.sums.data())} {}

  // A first pass, whose loss is known.
  Status Prepare() {
    GACCD_RETURN_IF_ERROR(Enqueue());
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_.get()), "cross-entropy"));
    GACCD_ASSIGN_OR_RETURN(loss_, Read<double>(memory_.results.data()));
    loss_ /= static_cast<double>(size_.rows);
    // Logits of uniform [-1, 1): log C + log(sinh 1) on average; a label's logit deviates by 0.577.
    const double expected = std::log(static_cast<double>(size_.columns)) + std::log(std::sinh(1.0));
    const double tolerance = 0.02 + 4 * 0.577 / std::sqrt(static_cast<double>(size_.rows));
    if (std::abs(loss_ - expected) < tolerance) return Status::Ok();
    return {ErrorKind::kInternal,
            StrCat("cross-entropy: expected a loss near ", expected, ", found ", loss_)};
  }
  Result<double> Run() override {
    return MedianSeconds(stream_.get(), kRepeats / 2, [this] { return Enqueue(); });
  }
  [[nodiscard]] double bytes() const override {
    return 2.0 * (bf16_ ? 2 : 4) * static_cast<double>(size_.rows * size_.columns);
  }
  [[nodiscard]] double proof() const override { return loss_; }

 private:
  Status Enqueue() {
    auto* const results = memory_.results.as<double>();
    return EnqueueTokenCrossEntropy(on_, bf16_ ? DType::kBF16 : DType::kF32, memory_.logits.data(),
                                    memory_.labels.as<std::int32_t>(), nullptr, {-100, 0},
                                    memory_.weight.as<float>(), size_, results, results + 1,
                                    memory_.logits.data());
  }

  CudaStream stream_;
  Memory memory_;
  Matrix size_;
  bool bf16_;
  KernelStream on_;
  double loss_ = 0;
};

}  // namespace

Result<DeviceBuffer> RandomBuffer(std::size_t bytes, bool bf16, const char* what) {
  GACCD_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Allocate(bytes, what));
  GACCD_RETURN_IF_ERROR(FillRandom(buffer, bf16 ? DType::kBF16 : DType::kF32));
  return buffer;
}

Result<DeviceBuffer> BufferOfOne(const void* value, std::size_t bytes, const char* what) {
  GACCD_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Allocate(bytes, what));
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(buffer.data(), value, bytes, cudaMemcpyHostToDevice), what));
  return buffer;
}

Result<double> MedianSeconds(cudaStream_t stream, int repeats,
                             const std::function<Status()>& enqueue) {
  std::vector<CudaEvent> events(static_cast<std::size_t>(repeats) + 1);
  for (CudaEvent& event : events) {
    GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create(CudaEvent::Kind::kTiming));
  }
  for (int warm_up = 0; warm_up < 3; ++warm_up) GACCD_RETURN_IF_ERROR(enqueue());
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events[0].get(), stream), "timing"));
  for (std::size_t i = 1; i < events.size(); ++i) {
    GACCD_RETURN_IF_ERROR(enqueue());
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(events[i].get(), stream), "timing"));
  }
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "timing"));
  std::vector<double> seconds;
  for (std::size_t i = 1; i < events.size(); ++i) {
    float milliseconds = 0;
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaEventElapsedTime(&milliseconds, events[i - 1].get(), events[i].get()), "timing"));
    seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repeats) / 2];
}

MadeCase MakeCopyCase(const CaseArguments& arguments) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t count, arguments.Count("bytes"));
  GACCD_ASSIGN_OR_RETURN(const bool by_kernel, arguments.Either("way", "memcpy", "kernel"));
  const auto bytes = static_cast<std::size_t>(count);
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  GACCD_ASSIGN_OR_RETURN(DeviceBuffer from, RandomBuffer(bytes, false, "copy"));
  GACCD_ASSIGN_OR_RETURN(DeviceBuffer to, DeviceBuffer::Allocate(bytes, "copy"));
  return CasePtr(
      std::make_unique<CopyCase>(std::move(stream), std::move(from), std::move(to), by_kernel));
}

MadeCase MakeAdamWCase(const CaseArguments& arguments) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t elements, arguments.Count("elements"));
  GACCD_ASSIGN_OR_RETURN(const bool bf16, arguments.Either("precision", "f32", "bf16"));
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  GACCD_ASSIGN_OR_RETURN(OptimizerMemory memory, MakeOptimizerMemory(elements, bf16));
  auto made = std::make_unique<AdamWCase>(std::move(stream), std::move(memory), elements);
  GACCD_RETURN_IF_ERROR(made->Prepare());
  return CasePtr(std::move(made));
}

MadeCase MakeNormCase(const CaseArguments& arguments) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t elements, arguments.Count("elements"));
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  GACCD_ASSIGN_OR_RETURN(OptimizerMemory memory, MakeOptimizerMemory(elements, false));
  return CasePtr(std::make_unique<NormCase>(std::move(stream), std::move(memory), elements));
}

MadeCase MakeEntropyCase(const CaseArguments& arguments) {
  Matrix size;
  GACCD_ASSIGN_OR_RETURN(size.rows, arguments.Count("rows"));
  GACCD_ASSIGN_OR_RETURN(size.columns, arguments.Count("columns"));
  GACCD_ASSIGN_OR_RETURN(const bool bf16, arguments.Either("precision", "f32", "bf16"));
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  EntropyCase::Memory memory;
  size.stride = RowStrideFor(bf16 ? DType::kBF16 : DType::kF32, size.columns);
  const auto bytes = static_cast<std::size_t>(size.rows * size.row_stride()) * (bf16 ? 2 : 4);
  GACCD_ASSIGN_OR_RETURN(memory.logits, RandomBuffer(bytes, bf16, "logits"));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(size.rows));
  std::mt19937 random(2);
  for (std::int32_t& label : labels) {
    label = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(size.columns));
  }
  GACCD_ASSIGN_OR_RETURN(memory.labels, BufferOfOne(labels.data(), 4 * labels.size(), "labels"));
  const float weight = 1.0F / static_cast<float>(size.rows);
  GACCD_ASSIGN_OR_RETURN(memory.weight, BufferOfOne(&weight, sizeof weight, "weight"));
  GACCD_ASSIGN_OR_RETURN(memory.results, DeviceBuffer::Allocate(2 * sizeof(double), "loss"));
  GACCD_ASSIGN_OR_RETURN(memory.sums, DeviceBuffer::Allocate(GridSums::kBytes, "sums"));
  int multiprocessors = 0;
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "device"));
  auto made = std::make_unique<EntropyCase>(std::move(stream), std::move(memory), size, bf16,
                                            multiprocessors);
  GACCD_RETURN_IF_ERROR(made->Prepare());
  return CasePtr(std::move(made));
}

}  // namespace gaccd
