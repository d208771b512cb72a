#include "daemon/ops/cpu_kernels.h"

#include <functional>
#include <map>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"

namespace gaccd {
namespace {

class CpuKernelFactory : public KernelFactory {
 public:
  CpuKernelFactory(CpuContext& context, const CpuKernelOptions& options)
      : makers_{
            {"accumulate", MakeAccumulateCpu},
            {"add", MakeAddCpu},
            {"add_positions", MakeAddPositionsCpu},
            {"attention", MakeAttentionCpu},
            {"attention_gradient", MakeAttentionGradientCpu},
            {"bias_gradient", MakeBiasGradientCpu},
            {"correct_count", MakeCorrectCountCpu},
            {"dropout", MakeDropoutCpu},
            {"embedding", MakeEmbeddingCpu},
            {"embedding_gradient", MakeEmbeddingGradientCpu},
            {"first_rows", MakeFirstRowsCpu},
            {"first_rows_gradient", MakeFirstRowsGradientCpu},
            {"gelu", MakeGeluCpu},
            {"gelu_gradient", MakeGeluGradientCpu},
            {"gelu_tanh", MakeGeluTanhCpu},
            {"gelu_tanh_gradient", MakeGeluTanhGradientCpu},
            {"l2_normalize", MakeL2NormalizeCpu},
            {"l2_normalize_gradient", MakeL2NormalizeGradientCpu},
            {"layer_norm", MakeLayerNormCpu},
            {"layer_norm_gradient", MakeLayerNormGradientCpu},
            {"linear",
             [&context, options](const KernelRequest& request) {
               return MakeLinearCpu(request, context, options);
             }},
            {"linear_input_gradient",
             [&context, options](const KernelRequest& request) {
               return MakeLinearInputGradientCpu(request, context, options);
             }},
            {"linear_weight_gradient",
             [&context](const KernelRequest& request) {
               return MakeLinearWeightGradientCpu(request, context);
             }},
            {"mean_rows", MakeMeanRowsCpu},
            {"mean_rows_gradient", MakeMeanRowsGradientCpu},
            {"mean_squared_error", MakeMeanSquaredErrorCpu},
            {"mean_squared_error_gradient", MakeMeanSquaredErrorGradientCpu},
            {"positions_gradient", MakePositionsGradientCpu},
            {"relu", MakeReluCpu},
            {"relu_gradient", MakeReluGradientCpu},
            {"silu", MakeSiluCpu},
            {"silu_gradient", MakeSiluGradientCpu},
            {"softmax", MakeSoftmaxCpu},
            {"softmax_cross_entropy", MakeSoftmaxCrossEntropyCpu},
            {"softmax_cross_entropy_gradient", MakeSoftmaxCrossEntropyGradientCpu},
            {"softmax_gradient", MakeSoftmaxGradientCpu},
            {"tanh", MakeTanhCpu},
            {"tanh_gradient", MakeTanhGradientCpu},
            {"token_cross_entropy", MakeTokenCrossEntropyCpu},
            {"token_cross_entropy_gradient", MakeTokenCrossEntropyGradientCpu},
        } {}

  KernelResult Make(const KernelRequest& request) override {
    for (const std::span<const ValueSpec> specs : {request.inputs, request.outputs}) {
      for (const ValueSpec& spec : specs) {
        if (spec.dtype != DType::kBF16) continue;
        return Status(ErrorKind::kConfig,
                      StrCat("'", request.function.name(), "' has no kernel for bf16 on the CPU: ",
                             "expected f32, found bf16 ", ToString(spec.shape)));
      }
    }
    const auto maker = makers_.find(request.function.name());
    if (maker == makers_.end()) {
      return Status(ErrorKind::kConfig,
                    StrCat("'", request.function.name(), "' has no kernel for the CPU"));
    }
    return maker->second(request);
  }

 private:
  std::map<std::string_view, std::function<KernelResult(const KernelRequest&)>> makers_;
};

}  // namespace

std::unique_ptr<KernelFactory> MakeCpuKernels(CpuContext& context,
                                              const CpuKernelOptions& options) {
  return std::make_unique<CpuKernelFactory>(context, options);
}

}  // namespace gaccd
