#include "daemon/device/cuda/matmul_fusion.h"

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"

namespace gaccd {

Result<std::optional<bool>> IsEpilogueFaster(CudaContext& context, const MatmulCudaSpec& fused,
                                             const MatmulCudaSpec& plain,
                                             const std::function<Result<double>()>& time_kernel) {
  MatmulChoices& choices = context.choices();
  const auto is_timed = [](const MatmulChoice* choice) {
    return choice != nullptr && choice->microseconds > 0;
  };
  const MatmulChoice* const with = choices.Find(fused);
  const MatmulChoice* const without = choices.Find(plain);
  if (!is_timed(with) || !is_timed(without)) return std::optional<bool>();
  if (with->separate_microseconds == 0) {
    const Result<double> kernel = time_kernel();
    if (!kernel.ok() && kernel.status().kind() == ErrorKind::kOs) {
      choices.AddWarning(StrCat(ToText(fused), ": its epilogue is not compared with a kernel: ",
                                kernel.status().message()));
      return std::optional<bool>();
    }
    if (!kernel.ok()) return kernel.status();
    choices.SetSeparate(fused, without->microseconds + *kernel);
  }
  return std::optional(with->microseconds <= with->separate_microseconds);
}

bool FillsTheGpu(const CudaContext& context, const MatmulCudaSpec& spec) {
  constexpr std::int64_t kTile = 128;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return tiles(spec.m) * tiles(spec.n) >= context.multiprocessors();
}

}  // namespace gaccd
