// LabelRanks: the rank of each row's label among its logits z [N, C], from which metrics of class
// labels (daemon/eval) are computed. Among equal logits the lower class comes first, as in
// PyTorch's argmax.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: logits f32, bf16 or fp16 [N, C], labels i32 [N]. Outputs, both i32 [N]: rank, the number
// of classes before the label; best, the first class. If a logit of the row is NaN, best is -1 and
// rank is C; rank is also C if the label is not a class. No gradient.
class LabelRanks : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "label_ranks"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
};

CpuMake MakeLabelRanksCpu;
CudaMake MakeLabelRanksCuda;
inline constexpr FunctionRow kLabelRanksRows[] = {
    {"label_ranks", MakeLabelRanksCpu, MakeLabelRanksCuda, nullptr, nullptr, kFirstInput},
};

}  // namespace gaccd
