// The table of all functions that have kernels: a row is the name, the maker of its kernel on the
// CPU, that on the GPU (null: it has none there), and, if it stands for several nodes in one, the
// rule that puts it into graphs for the GPU; and what the GPU's kernel refuses. Views need no row.
//
// Only for constant expressions (FromFunctionTable): without CUDA the makers of the GPU are
// declared and not linked. Use cpu_kernels.h and cuda_kernels.h.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "daemon/ops/attention.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/cuda_makers.h"
#include "daemon/ops/label_ranks.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/multiply.h"
#include "daemon/ops/softmax_cross_entropy.h"

namespace gaccd {

// A function that makes a kernel: of the node alone, or with the environment.
struct CpuMaker {
  using OfNode = KernelResult (*)(const KernelRequest&);
  using OfEnvironment = KernelResult (*)(const KernelRequest&, const CpuEnvironment&);

  constexpr CpuMaker(std::nullptr_t) {}
  constexpr CpuMaker(OfNode make) : of_node(make) {}
  constexpr CpuMaker(OfEnvironment make) : of_environment(make) {}

  OfNode of_node = nullptr;
  OfEnvironment of_environment = nullptr;
  bool takes_bf16 = false;
  bool makes_bf16 = false;
};

// Inputs, or outputs, may be bf16.
constexpr CpuMaker TakesBf16(CpuMaker maker) {
  maker.takes_bf16 = true;
  return maker;
}
constexpr CpuMaker MakesBf16(CpuMaker maker) {
  maker.makes_bf16 = true;
  return maker;
}

// Replaces the nodes it knows in a graph for the GPU (fuse.h).
using FusionRule = void (*)(Fuser&);

// kConfig where the GPU's kernel does not take these inputs. Asked for when a job is planned.
using CudaCheck = Status (*)(const Function&, std::span<const ValueSpec> inputs);

struct FunctionRow {
  std::string_view name;
  CpuMaker cpu;
  CudaMaker cuda;
  FusionRule fusion = nullptr;
  CudaCheck check = nullptr;
};

inline constexpr FunctionRow kFunctions[] = {
    {"accumulate", MakeAccumulateCpu, MakeAccumulateCuda},
    {"add", MakeAddCpu, MakeAddCuda},
    {"add_layer_norm", nullptr, MakeAddLayerNormCuda, FuseAddLayerNorm},
    {"add_positions", MakeAddPositionsCpu, MakeAddPositionsCuda},
    {"all_gather", MakeCollectiveCpu, MakeCollectiveCuda},
    {"all_reduce_mean", MakeCollectiveCpu, MakeCollectiveCuda},
    {"all_reduce_sum", MakeCollectiveCpu, MakeCollectiveCuda},
    {"attention", MakeAttentionCpu, MakeAttentionCuda, nullptr, CheckAttentionOnGpu},
    {"attention_gradient", MakesBf16(MakeAttentionGradientCpu), MakeAttentionGradientCuda},
    {"bias_gradient", TakesBf16(MakeBiasGradientCpu), MakeBiasGradientCuda},
    {"broadcast", MakeCollectiveCpu, MakeCollectiveCuda},
    {"broadcast_gradient", MakeCollectiveCpu, MakeCollectiveCuda},
    {"cast", MakesBf16(MakeCastCpu), MakeCastCuda},
    {"divide_by_count", MakeCollectiveCpu, MakeCollectiveCuda},
    {"dropout", MakeDropoutCpu, MakeDropoutCuda},
    {"embedding", MakeEmbeddingCpu, MakeEmbeddingCuda},
    {"embedding_gradient", MakeEmbeddingGradientCpu, MakeEmbeddingGradientCuda},
    {"first_rows", MakeFirstRowsCpu, MakeFirstRowsCuda},
    {"first_rows_gradient", MakeFirstRowsGradientCpu, MakeFirstRowsGradientCuda},
    {"gelu", MakesBf16(MakeGeluCpu), MakeActivationCuda},
    {"gelu_gradient", MakesBf16(MakeGeluGradientCpu), MakeActivationGradientCuda},
    {"gelu_tanh", MakesBf16(MakeGeluTanhCpu), MakeActivationCuda},
    {"gelu_tanh_gradient", MakesBf16(MakeGeluTanhGradientCpu), MakeActivationGradientCuda},
    {"join_columns", MakeJoinColumnsCpu, MakeJoinColumnsCuda},
    {"join_columns_gradient", MakeJoinColumnsGradientCpu, MakeJoinColumnsGradientCuda},
    {"l2_normalize", MakeL2NormalizeCpu, MakeL2NormalizeCuda},
    {"l2_normalize_gradient", MakeL2NormalizeGradientCpu, MakeL2NormalizeGradientCuda},
    {"label_ranks", MakeLabelRanksCpu, MakeLabelRanksCuda},
    {"layer_norm", MakesBf16(MakeLayerNormCpu), MakeLayerNormCuda},
    {"layer_norm_gradient", MakeLayerNormGradientCpu, MakeLayerNormGradientCuda},
    {"linear", TakesBf16(MakesBf16(MakeLinearCpu)), MakeLinearCuda},
    {"linear_input_gradient", TakesBf16(MakeLinearInputGradientCpu), MakeLinearInputGradientCuda},
    {"linear_weight_bias_gradient", nullptr, MakeLinearWeightBiasGradientCuda, FuseLinearGradients},
    {"linear_weight_gradient", TakesBf16(MakeLinearWeightGradientCpu),
     MakeLinearWeightGradientCuda},
    {"mean_rows", MakeMeanRowsCpu, MakeMeanRowsCuda},
    {"mean_rows_gradient", MakeMeanRowsGradientCpu, MakeMeanRowsGradientCuda},
    {"mean_squared_error", MakeMeanSquaredErrorCpu, MakeMeanSquaredErrorCuda},
    {"mean_squared_error_fused", nullptr, MakeMeanSquaredErrorFusedCuda, FuseMeanSquaredError},
    {"mean_squared_error_gradient", MakeMeanSquaredErrorGradientCpu,
     MakeMeanSquaredErrorGradientCuda},
    {"multiply", MakeMultiplyCpu, MakeMultiplyCuda},
    {"own_rows", MakeCollectiveCpu, MakeCollectiveCuda},
    {"positions_gradient", MakePositionsGradientCpu, MakePositionsGradientCuda},
    {"reduce_scatter", MakeCollectiveCpu, MakeCollectiveCuda},
    {"relu", MakeReluCpu, MakeReluCuda},
    {"relu_gradient", TakesBf16(MakesBf16(MakeReluGradientCpu)), MakeReluGradientCuda},
    {"silu", MakesBf16(MakeSiluCpu), MakeActivationCuda},
    {"silu_gradient", MakesBf16(MakeSiluGradientCpu), MakeActivationGradientCuda},
    {"softmax", MakeSoftmaxCpu, MakeSoftmaxCuda},
    {"softmax_cross_entropy", MakeSoftmaxCrossEntropyCpu, MakeSoftmaxCrossEntropyCuda},
    {"softmax_cross_entropy_fused", nullptr, MakeSoftmaxCrossEntropyFusedCuda,
     FuseSoftmaxCrossEntropy},
    {"softmax_cross_entropy_gradient", MakeSoftmaxCrossEntropyGradientCpu,
     MakeSoftmaxCrossEntropyGradientCuda},
    {"softmax_cross_entropy_loss", nullptr, MakeSoftmaxCrossEntropyLossCuda},
    {"softmax_gradient", MakeSoftmaxGradientCpu, MakeSoftmaxGradientCuda},
    {"tanh", MakesBf16(MakeTanhCpu), MakeActivationCuda},
    {"tanh_gradient", MakesBf16(MakeTanhGradientCpu), MakeActivationGradientCuda},
    {"token_cross_entropy", MakeTokenCrossEntropyCpu, MakeTokenCrossEntropyCuda},
    {"token_cross_entropy_gradient", MakeTokenCrossEntropyGradientCpu,
     MakeTokenCrossEntropyGradientCuda},
    {"zeros", MakeZerosCpu, MakeZerosCuda},
};

// Projection of the rows, made by the compiler: kFunctions itself is then in no program.
template <typename Row, typename Project>
consteval auto FromFunctionTable(Project project) {
  std::array<Row, std::size(kFunctions)> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = project(kFunctions[i]);
  return rows;
}

// The row of this name, or null.
template <typename Row, std::size_t kRows>
const Row* FindRow(const std::array<Row, kRows>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace gaccd
