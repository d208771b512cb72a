// Gradients of text models that are bound by memory: of embeddings, of layer norm.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/ops/kernels_cuda.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr int kRepeats = 20;

// A value that the work has to leave finite, read back from the GPU.
Result<float> FiniteValue(const void* device, const char* what) {
  float value = 0;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost), what));
  if (std::isfinite(value)) return value;
  return Status(ErrorKind::kInternal, StrCat(what, ": expected a finite value, found ", value));
}

class EmbeddingCase final : public GpuCase {
 public:
  struct Memory {
    DeviceBuffer dy, ids, table, scratch;
  };
  EmbeddingCase(CudaStream stream, Memory memory, Matrix dy, Matrix table, std::int64_t touched)
      : stream_(std::move(stream)),
        memory_(std::move(memory)),
        dy_(dy),
        table_(table),
        touched_(touched) {}

  Result<double> Run() override {
    const KernelStream on{stream_.get(), 1, {}};
    GACCD_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream_.get(), kRepeats, [&] {
                             return EnqueueEmbeddingGradient(
                                 on, DType::kBF16, memory_.dy.data(),
                                 memory_.ids.as<std::int32_t>(), dy_.rows, table_,
                                 memory_.table.as<float>(), true, memory_.scratch.data());
                           }));
    GACCD_ASSIGN_OR_RETURN(proof_, FiniteValue(memory_.table.data(), "embedding gradient"));
    return seconds;
  }
  // Read: dy, ids; read and written: the rows of the table that have an id.
  [[nodiscard]] double bytes() const override {
    return static_cast<double>(dy_.rows) * (2.0 * static_cast<double>(dy_.columns) + 4) +
           8.0 * static_cast<double>(touched_ * dy_.columns);
  }
  [[nodiscard]] double proof() const override { return static_cast<double>(proof_); }

 private:
  CudaStream stream_;
  Memory memory_;
  Matrix dy_, table_;
  std::int64_t touched_;  // rows of the table
  float proof_ = 0;
};

class LayerNormCase final : public GpuCase {
 public:
  // vectors: gamma, its gradient, that of beta. statistics: means, then reciprocal deviations.
  struct Memory {
    DeviceBuffer dy, x, residual, dx, vectors, statistics, scratch;
  };
  LayerNormCase(CudaStream stream, Memory memory, Matrix size)
      : stream_(std::move(stream)), memory_(std::move(memory)), size_(size) {}

  Result<double> Run() override {
    const KernelStream on{stream_.get(), 1, {}};
    auto* const gamma = memory_.vectors.as<float>();
    const auto* const means = memory_.statistics.as<float>();
    const LayerNormGradients to{memory_.dx.data(), gamma + size_.columns, gamma + 2 * size_.columns,
                                false, false};
    GACCD_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream_.get(), kRepeats, [&] {
                             return EnqueueLayerNormGradient(
                                 on, DType::kBF16, memory_.dy.data(), memory_.x.data(),
                                 memory_.residual.data(), gamma, means, means + size_.rows, size_,
                                 to, memory_.scratch.data());
                           }));
    GACCD_ASSIGN_OR_RETURN(proof_, FiniteValue(to.dbeta, "layer norm gradient"));
    return seconds;
  }
  // Read: dy, x, the residual; written: dx.
  [[nodiscard]] double bytes() const override {
    return 4 * 2.0 * static_cast<double>(size_.rows * size_.columns);
  }
  [[nodiscard]] double proof() const override { return static_cast<double>(proof_); }

 private:
  CudaStream stream_;
  Memory memory_;
  Matrix size_;
  float proof_ = 0;
};

}  // namespace

MadeCase MakeEmbeddingCase(const CaseArguments& arguments) {
  Matrix dy;
  GACCD_ASSIGN_OR_RETURN(dy.rows, arguments.Count("rows"));
  GACCD_ASSIGN_OR_RETURN(dy.columns, arguments.Count("columns"));
  Matrix table{0, dy.columns};
  GACCD_ASSIGN_OR_RETURN(table.rows, arguments.Count("table"));
  GACCD_ASSIGN_OR_RETURN(const bool equal, arguments.Either("ids", "random", "equal"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(dy.rows));
  std::mt19937 random(3);
  for (std::int32_t& id : ids) {
    id = equal ? 0 : static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(table.rows));
  }
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  EmbeddingCase::Memory memory;
  GACCD_ASSIGN_OR_RETURN(memory.dy, RandomBuffer(static_cast<std::size_t>(dy.rows * dy.columns) * 2,
                                                 true, "gradient"));
  GACCD_ASSIGN_OR_RETURN(
      memory.table,
      RandomBuffer(static_cast<std::size_t>(table.rows * table.columns) * 4, false, "table"));
  GACCD_ASSIGN_OR_RETURN(memory.ids, BufferOfOne(ids.data(), 4 * ids.size(), "ids"));
  GACCD_ASSIGN_OR_RETURN(
      memory.scratch,
      DeviceBuffer::Allocate(EmbeddingGradientScratchBytes(dy.rows, dy.columns), "scratch"));
  std::ranges::sort(ids);
  const auto [last, end] = std::ranges::unique(ids);
  return CasePtr(std::make_unique<EmbeddingCase>(std::move(stream), std::move(memory), dy, table,
                                                 std::distance(ids.begin(), last)));
}

MadeCase MakeLayerNormCase(const CaseArguments& arguments) {
  Matrix size;
  GACCD_ASSIGN_OR_RETURN(size.rows, arguments.Count("rows"));
  GACCD_ASSIGN_OR_RETURN(size.columns, arguments.Count("columns"));
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  LayerNormCase::Memory memory;
  const auto rows = static_cast<std::size_t>(size.rows);
  const auto columns = static_cast<std::size_t>(size.columns);
  for (DeviceBuffer* values : {&memory.dy, &memory.x, &memory.residual, &memory.dx}) {
    GACCD_ASSIGN_OR_RETURN(*values, RandomBuffer(rows * columns * 2, true, "layer norm"));
  }
  GACCD_ASSIGN_OR_RETURN(memory.vectors, RandomBuffer(3 * columns * 4, false, "gamma"));
  GACCD_ASSIGN_OR_RETURN(memory.statistics, RandomBuffer(2 * rows * 4, false, "statistics"));
  GACCD_ASSIGN_OR_RETURN(memory.scratch,
                         DeviceBuffer::Allocate(LayerNormGradientScratchBytes(size), "scratch"));
  return CasePtr(std::make_unique<LayerNormCase>(std::move(stream), std::move(memory), size));
}

}  // namespace gaccd
