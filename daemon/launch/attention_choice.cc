#include "daemon/launch/attention_choice.h"

#include <algorithm>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/launch/gather_text.h"
#include "daemon/replica/model.h"

namespace gaccd {

Result<bool> HasAttention(const Job& job) {
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::MakeWithoutData(job.model));
  GACCD_ASSIGN_OR_RETURN(const TrainingGraph training, model.RecordTraining({1}));
  return std::ranges::any_of(training.graph.nodes(),
                             [](const Node& node) { return node.function->name() == "attention"; });
}

Result<AttentionChoice> ChooseAttention(Communicator& over, Precision precision,
                                        const Result<SdpaOpener>& mine) {
  if (precision == Precision::kF32) {
    return AttentionChoice{.text = "attention: gaccd's own kernel, as in f32 always"};
  }
  const std::string why_not = mine.ok() ? "" : mine.status().message();
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> reasons, GatherText(over, why_not));
  const auto first = std::ranges::find_if(reasons, [](const auto& r) { return !r.empty(); });
  if (first == reasons.end()) return AttentionChoice{.library = *mine, .text = "attention: cuDNN"};
  const auto rank = static_cast<std::size_t>(first - reasons.begin());
  const auto missing = std::ranges::count_if(reasons, [](const auto& r) { return !r.empty(); });
  return AttentionChoice{.text = StrCat(kOwnAttention, missing, " of ", reasons.size(),
                                        " ranks cannot use cuDNN; rank ", rank, " on ",
                                        over.topology().hosts[rank], ": ", *first),
                         .slow = true};
}

}  // namespace gaccd
