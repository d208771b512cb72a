#include "daemon/launch/dnn_choice.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/share_text.h"
#include "daemon/autograd/function.h"
#include "daemon/replica/model.h"

namespace gaccd {

Result<DnnWork> FindDnnWork(const Job& job) {
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::MakeWithoutData(job.model));
  GACCD_ASSIGN_OR_RETURN(const TrainingGraph training, model.RecordTraining({1}));
  const auto has = [&](std::string_view function) {
    return std::ranges::any_of(training.graph.nodes(),
                               [&](const Node& node) { return node.function->name() == function; });
  };
  return DnnWork{.attention = has("attention"), .convolution = has("conv2d")};
}

Result<DnnChoice> ChooseDnn(Communicator& over, const DnnWork& work, Precision precision,
                            const Result<DnnFactory>& mine) {
  const char* const what = !work.attention    ? "convolutions"
                           : work.convolution ? "attention and convolutions"
                                              : "attention";
  if (precision == Precision::kF32) {
    return DnnChoice{.text = StrCat(what, ": gaccd's own kernels, as in f32 always")};
  }
  const std::string why_not = mine.ok() ? "" : mine.status().message();
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> reasons, GatherText(over, why_not));
  const auto first = std::ranges::find_if(reasons, [](const auto& r) { return !r.empty(); });
  if (first == reasons.end()) return DnnChoice{.library = *mine, .text = StrCat(what, ": cuDNN")};
  const auto rank = static_cast<std::size_t>(first - reasons.begin());
  const auto missing = std::ranges::count_if(reasons, [](const auto& r) { return !r.empty(); });
  return DnnChoice{.text = StrCat(work.attention ? kOwnAttention : kOwnConvolution, missing, " of ",
                                  reasons.size(), " ranks cannot use cuDNN; rank ", rank, " on ",
                                  over.topology().hosts[rank], ": ", *first),
                   .slow = true};
}

}  // namespace gaccd
