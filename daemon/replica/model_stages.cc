// A model as a pipeline stage: graphs are recorded for the whole model, with its random numbers and
// names, and then cut.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/replica/model.h"

namespace gaccd {
namespace {

// By block end: the node that computes it, looking through views; none if it is an input.
std::vector<std::optional<std::size_t>> FindProducers(const Graph& graph,
                                                      std::span<const ValueId> block_ends) {
  std::vector<std::optional<std::size_t>> makers(block_ends.size());
  bool computes = false;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    computes = computes || !node.function->is_view();
    for (std::size_t end = 0; computes && end < block_ends.size(); ++end) {
      if (std::ranges::count(node.outputs, block_ends[end]) > 0) makers[end] = i;
    }
  }
  return makers;
}

// Whether the parameters before `cut` are stored before the others. A division into stages is
// possible exactly where this holds for each of its cuts.
bool DividesParameters(const Graph& graph, const FlatLayout& layout, ValueId cut) {
  const auto users = FindStageParameters(graph, {.values = {cut}});
  // SetStage() reports a value that is needed in both parts.
  return !users.ok() || DivideParameters(layout, *users, {1, 1}, 0).ok();
}

// Whether two graphs apply the same functions in the same order.
bool HaveSameFunctions(const Graph& a, const Graph& b) {
  return std::ranges::equal(a.nodes(), b.nodes(), [](const Node& one, const Node& other) {
    return one.function->name() == other.function->name();
  });
}

double NodeFlops(const Graph& graph, const Node& node) {
  std::vector<ValueSpec> inputs;
  for (const ValueId input : node.inputs) inputs.push_back(graph.value(input).spec);
  return node.function->ProductFlops(inputs);
}

}  // namespace

// Checks training and evaluation: without dropout, two block ends may be the same value.
Result<std::vector<std::size_t>> Model::PlacesToCut() const {
  Graph training;
  Graph evaluation;
  GACCD_ASSIGN_OR_RETURN(const Forward trained,
                         RecordForward(training, For::kTraining, {1}, Precision::kF32));
  GACCD_ASSIGN_OR_RETURN(const Forward evaluated,
                         RecordForward(evaluation, For::kEvaluation, {1}, Precision::kF32));
  const auto in_training = FindProducers(training, trained.block_ends);
  const auto in_evaluation = FindProducers(evaluation, evaluated.block_ends);
  std::vector<std::size_t> places;
  for (std::size_t end = 0; end < in_training.size(); ++end) {
    if (!in_training[end] || !in_evaluation[end]) continue;
    if (!places.empty() && (*in_training[end] <= *in_training[places.back()] ||
                            *in_evaluation[end] <= *in_evaluation[places.back()])) {
      continue;
    }
    if (!DividesParameters(training, layout_, trained.block_ends[end])) continue;
    places.push_back(end);
  }
  return places;
}

// The forward of a matrix product is a third of its operations with gradients.
Result<std::vector<double>> Model::BlockFlops() const {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::size_t> places, PlacesToCut());
  Graph graph;
  GACCD_ASSIGN_OR_RETURN(const Forward forward,
                         RecordForward(graph, For::kTraining, {1}, Precision::kF32));
  const auto makers = FindProducers(graph, forward.block_ends);
  std::vector<double> flops(places.size() + 1);
  std::size_t block = 0;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    flops[block] += 3 * NodeFlops(graph, graph.nodes()[i]);
    if (block < places.size() && i == *makers[places[block]]) ++block;
  }
  return flops;
}

Result<std::int64_t> Model::LeastFirstBlocks() const {
  if (loss_ == LossKind::kContrastive) return 1;  // refused by SetStage()
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::size_t> places, PlacesToCut());
  Graph graph;
  GACCD_ASSIGN_OR_RETURN(const Forward forward,
                         RecordForward(graph, For::kTraining, {1}, Precision::kF32));
  GACCD_ASSIGN_OR_RETURN(const Loss loss, RecordLoss(graph, For::kTraining, forward));
  const ValueId seed = graph.AddInput("weight", {{1}, DType::kF32});
  std::vector<std::optional<ValueId>> gradients;
  GACCD_RETURN_IF_ERROR(RecordGradients(graph, loss.sum, seed, &gradients));
  const auto trains = [&](std::size_t place) {
    return gradients[Index(forward.block_ends[place])].has_value();
  };
  return std::ranges::find_if(places, trains) - places.begin() + 1;
}

StageCuts Model::MakeCuts(std::span<const ValueId> block_ends, std::optional<ValueId> seed) const {
  StageCuts cuts{.values = {}, .seed = seed};
  std::int64_t before = 0;
  for (std::size_t s = 0; s + 1 < stage_->stages(); ++s) {
    before += stage_->blocks[s];
    cuts.values.push_back(block_ends[places_[static_cast<std::size_t>(before - 1)]]);
  }
  return cuts;
}

Status Model::SetStage(std::vector<std::int64_t> blocks, std::size_t stage, bool divide_backward) {
  const auto refuse = [](std::string_view found) {
    return Status(ErrorKind::kConfig, StrCat("pipeline: expected a model whose micro-batches do "
                                             "not depend on others, found ",
                                             found));
  };
  if (loss_ == LossKind::kContrastive) return refuse("a contrastive loss");
  if (has_collectives_) return refuse("layers with collective operations");
  if (!running_.empty()) return refuse("batch norms whose statistics are not FROZEN");
  GACCD_ASSIGN_OR_RETURN(places_, PlacesToCut());
  Graph graph;  // for all stages
  GACCD_ASSIGN_OR_RETURN(const Forward forward,
                         RecordForward(graph, For::kTraining, {1}, Precision::kF32));
  GACCD_RETURN_IF_ERROR(RecordLoss(graph, For::kTraining, forward).status());
  const std::int64_t found = std::ssize(places_) + 1;
  if (std::reduce(blocks.begin(), blocks.end()) != found || std::ranges::min(blocks) < 1) {
    return {ErrorKind::kConfig, StrCat("pipeline: expected at least one block a stage, of ", found,
                                       " blocks together, found ", Join(blocks, ", "))};
  }
  stage_ = PipelineStage{.stage = stage, .blocks = blocks};
  GACCD_ASSIGN_OR_RETURN(const StageUsers users, FindUsers(graph, forward.block_ends));
  GACCD_ASSIGN_OR_RETURN(stage_, DivideParameters(layout_, users, std::move(blocks), stage));
  stage_->divides_backward = divide_backward;
  return RecordTraining({1}).status();
}

// Blocks are counted in the whole graph: with other functions in a shorter one, a cut would be
// elsewhere.
Result<StageUsers> Model::FindUsers(const Graph& whole, std::span<const ValueId> block_ends) {
  GACCD_ASSIGN_OR_RETURN(const StageUsers of_whole,
                         FindStageParameters(whole, MakeCuts(block_ends, std::nullopt)));
  StageUsers users = of_whole;
  for (const std::int64_t length : sample_.cuts) {
    Graph graph;
    GACCD_ASSIGN_OR_RETURN(
        const Forward forward,
        RecordForward(graph, For::kTraining, {.samples = 1, .length = length}, Precision::kF32));
    GACCD_RETURN_IF_ERROR(RecordLoss(graph, For::kTraining, forward).status());
    if (!HaveSameFunctions(graph, whole) ||
        FindProducers(graph, forward.block_ends) != FindProducers(whole, block_ends)) {
      sample_.cuts.clear();
      return of_whole;
    }
    GACCD_ASSIGN_OR_RETURN(const StageUsers found,
                           FindStageParameters(graph, MakeCuts(forward.block_ends, std::nullopt)));
    for (std::size_t stage = 0; stage < found.size(); ++stage) {
      std::vector<std::size_t> both;
      std::ranges::set_union(users[stage], found[stage], std::back_inserter(both));
      users[stage] = std::move(both);
    }
  }
  return users;
}

Model Model::WithAllStages() const {
  Model model = *this;
  model.stage_.reset();
  return model;
}

Status Model::CutToStage(const std::vector<std::optional<ValueId>>& gradients,
                         TrainingGraph* training) const {
  StageCuts cuts = MakeCuts(training->block_ends, training->weight);
  for (std::size_t s = 0; s < cuts.values.size(); ++s) {
    const std::optional<ValueId>& gradient = gradients[Index(cuts.values[s])];
    if (!gradient) {
      return {ErrorKind::kConfig,
              StrCat("pipeline: expected something to train in the first stage, found blocks 1 to ",
                     stage_->blocks.front(), " frozen: pipeline.blocks must give it more")};
    }
    cuts.gradients.push_back(*gradient);
  }
  GACCD_ASSIGN_OR_RETURN(training->ends,
                         CutStage(cuts, stage_->stage, &training->graph, stage_->divides_backward));
  if (stage_->last()) return Status::Ok();
  training->weight = nn::kNoValue;
  training->loss_sum = nn::kNoValue;
  training->divisor.reset();
  return Status::Ok();
}

Status Model::CutToStage(std::span<const ValueId> block_ends, EvaluationGraph* evaluation) const {
  Graph& graph = evaluation->graph;
  GACCD_ASSIGN_OR_RETURN(evaluation->ends,
                         CutStage(MakeCuts(block_ends, std::nullopt), stage_->stage, &graph));
  if (stage_->last()) return Status::Ok();
  evaluation->loss_sum.reset();
  evaluation->divisor.reset();
  evaluation->ranks.reset();
  evaluation->best.reset();
  evaluation->prediction.reset();
  return Status::Ok();
}

}  // namespace gaccd
