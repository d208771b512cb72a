#include "daemon/models/graph_network.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/models/graph_ops.h"
#include "daemon/tensor/sample.h"

namespace gaccd {
namespace {

std::map<std::string_view, const GraphTensor*> ByName(const std::vector<GraphTensor>& tensors) {
  std::map<std::string_view, const GraphTensor*> by_name;
  for (const GraphTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  return by_name;
}

// Inputs that are parameters of the op must be parameters; buffers are only allowed as statistics
// of batch norms.
Status CheckInputs(const GraphNode& node,
                   const std::map<std::string_view, const GraphTensor*>& parameters) {
  const GraphOp& op = *FindGraphOp(node.op);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].empty()) continue;
    const auto found = parameters.find(node.inputs[i]);
    const bool is_parameter = found != parameters.end();
    const auto bad = [&](std::string_view expected) {
      return BadGraph(StrCat(op.name, ": expected ", expected, " as input ", i, ", found '",
                             node.inputs[i], "'"));
    };
    const bool is_value = i < op.values || op.many;
    if (!is_value && !is_parameter) return bad("a parameter");
    const bool buffer = op.name == kBatchNormOp && i >= kFirstBuffer;
    if (is_parameter && found->second->buffer != buffer) {
      return bad(buffer ? "a buffer" : "a parameter that is no buffer");
    }
  }
  return Status::Ok();
}

// Adds the names that the nodes use to `used`.
Status CheckBody(const GraphBody& body,
                 const std::map<std::string_view, const GraphTensor*>& parameters,
                 std::set<std::string_view>* used) {
  for (const GraphNode& node : body.nodes) {
    GACCD_RETURN_IF_ERROR(CheckGraphNode(node).WithContext(node.Where()));
    GACCD_RETURN_IF_ERROR(CheckInputs(node, parameters).WithContext(node.Where()));
    used->insert(node.inputs.begin(), node.inputs.end());
  }
  if (!parameters.contains(body.output)) return Status::Ok();
  return BadGraph("output: expected a value, found a parameter");
}

Status CheckGraph(const GraphFile& graph) {
  const auto parameters = ByName(graph.parameters);
  std::set<std::string_view> used;
  GACCD_RETURN_IF_ERROR(CheckBody(graph.whole, parameters, &used));
  for (const GraphBody& body : graph.shorter) {
    GACCD_RETURN_IF_ERROR(
        CheckBody(body, parameters, &used).WithContext(StrCat("for ", body.length, " tokens")));
  }
  for (const GraphTensor& parameter : graph.parameters) {
    if (!used.contains(parameter.name) && !parameter.buffer) {
      return BadGraph(StrCat("no node uses the parameter '", parameter.name, "'"));
    }
  }
  if (graph.inputs.empty() || graph.inputs.size() >= kMaxTensors) {
    return BadGraph(
        StrCat("inputs: expected 1 to ", kMaxTensors - 1, ", found ", graph.inputs.size()));
  }
  return Status::Ok();
}

// Initial values if no weights are loaded, like those of most PyTorch layers: weights of at least
// two dimensions uniform in +-1/sqrt(fan in), weights of norms 1, others 0.
nn::Initializer DefaultInitializer(const GraphTensor& parameter, bool one) {
  if (one) return nn::Constant(1);
  if (parameter.sizes.size() < 2) return nn::Constant(0);
  const auto fan_in = static_cast<double>(Elements(parameter.sizes) / parameter.sizes[0]);
  return nn::Uniform(1 / std::sqrt(fan_in));
}

bool IsTrained(const GraphTensor& parameter) {
  return !parameter.buffer && parameter.values == nullptr;
}

// Whether the input has one value per token.
bool HasValuePerToken(const GraphTensor& input) {
  return input.sizes.size() == 2 &&
         (input.name == "tokens" || input.name == "segments" || input.name == kAttentionMask);
}

std::set<std::string_view> StartAtOne(const GraphFile& graph) {
  std::set<std::string_view> ones;
  for (const GraphNode& node : graph.whole.nodes) {
    for (const std::size_t i : FindGraphOp(node.op)->ones) ones.insert(node.inputs[i]);
  }
  return ones;
}

// The inputs, the constants and the values that depend on nothing else, not on random numbers
// either: every stage of a pipeline computes those that it reads (autograd/stage.h).
std::set<std::string_view> MadeFromInputs(const GraphFile& graph, const GraphBody& body) {
  std::set<std::string_view> made = {""};  // an input that the node omits
  for (const GraphTensor& input : graph.inputs) made.insert(input.name);
  for (const GraphTensor& parameter : graph.parameters) {
    if (parameter.values != nullptr) made.insert(parameter.name);
  }
  for (const GraphNode& node : body.nodes) {
    const bool random =
        node.op == "dropout" || node.op == "drop_samples" || node.op == "uniform_noise";
    const auto is_made = [&](const std::string& input) { return made.contains(input); };
    if (!random && std::ranges::all_of(node.inputs, is_made)) made.insert(node.name);
  }
  return made;
}

// For each node: whether its value is the only one so far that later nodes or the output read,
// except those made from inputs.
std::vector<bool> IsOnlyLiveValue(const GraphFile& file, const GraphBody& graph) {
  const std::set<std::string_view> made = MadeFromInputs(file, graph);
  std::map<std::string_view, std::size_t> last_reader;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::string& input : graph.nodes[i].inputs) last_reader[input] = i;
  }
  last_reader[graph.output] = graph.nodes.size();
  std::vector<bool> alone;
  std::multiset<std::size_t> last_readers;  // of values so far
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::string& name = graph.nodes[i].name;
    const bool counts = !made.contains(name);
    if (counts) last_readers.insert(last_reader[name]);
    last_readers.erase(last_readers.begin(), last_readers.upper_bound(i));
    alone.push_back(counts && last_readers.size() == 1 && last_reader[name] > i);
  }
  return alone;
}

// Whether the network has batch norms whose statistics depend on the batch, including padding.
bool NormalisesBatches(const GraphBody& body, BatchStatistics stats) {
  return stats != BatchStatistics::kFrozen &&
         std::ranges::find(body.nodes, kBatchNormOp, &GraphNode::op) != body.nodes.end();
}

// Whether all bodies use the same trained parameters. The gradient of one that a micro-batch does
// not use would remain that of another update.
bool TrainTheSame(const GraphFile& graph) {
  std::set<std::string_view> trained;
  for (const GraphTensor& parameter : graph.parameters) {
    if (IsTrained(parameter)) trained.insert(parameter.name);
  }
  const auto used = [&](const GraphBody& body) {
    std::set<std::string_view> names;
    for (const GraphNode& node : body.nodes) {
      std::ranges::copy_if(node.inputs, std::inserter(names, names.end()),
                           [&](const std::string& input) { return trained.contains(input); });
    }
    return names;
  };
  const auto whole = used(graph.whole);
  return std::ranges::all_of(graph.shorter,
                             [&](const GraphBody& body) { return used(body) == whole; });
}

// Whether `pieces` are the pieces `whole` of a sample after cutting texts from `length_whole` to
// `length` tokens.
bool IsCutFrom(const Shape& whole, std::int64_t length_whole, const Shape& pieces,
               std::int64_t length) {
  return std::ranges::equal(whole, pieces, [&](std::int64_t before, std::int64_t after) {
    return before == after || (before == length_whole && after == length);
  });
}

}  // namespace

GraphNetwork::GraphNetwork(GraphFile graph, const NormStatistics& statistics)
    : graph_(std::move(graph)), statistics_(statistics) {
  const std::set<std::string_view> ones = StartAtOne(graph_);
  for (const GraphTensor& parameter : graph_.parameters) {
    indices_[parameter.name] = parameters_.Declare(
        {.name = parameter.name,
         .shape = parameter.sizes,
         .initializer = DefaultInitializer(parameter, ones.contains(parameter.name)),
         .frozen = parameter.frozen || !IsTrained(parameter),
         .buffer = !IsTrained(parameter),
         .values = parameter.values});
  }
}

Result<std::shared_ptr<const Network>> GraphNetwork::Make(GraphFile graph,
                                                          const NormStatistics& statistics,
                                                          const std::string& name) {
  GACCD_RETURN_IF_ERROR(CheckGraph(graph).WithContext(name));
  std::shared_ptr<GraphNetwork> network(new GraphNetwork(std::move(graph), statistics));
  if (!network->graph_.shorter.empty()) network->dropped_ = network->DroppedAt(0);
  network->ignores_padding_ = !network->graph_.shorter.empty() &&
                              !NormalisesBatches(network->graph_.whole, statistics.stats) &&
                              network->DropsTheSame() && TrainTheSame(network->graph_);
  return std::shared_ptr<const Network>(std::move(network));
}

Result<std::shared_ptr<const Network>> GraphNetwork::Load(const GraphSpec& spec) {
  GACCD_ASSIGN_OR_RETURN(GraphFile graph, ReadGraph(spec.path));
  if (spec.digest && *spec.digest != graph.digest) {
    return BadGraph(StrCat("model.graph.path: ", spec.path,
                           " is not the network that the run began ", "with: expected the digest ",
                           *spec.digest, ", found ", graph.digest));
  }
  return Make(std::move(graph), {spec.stats, spec.ghost_size}, spec.path);
}

const GraphBody& GraphNetwork::BodyFor(nn::Recorder& recorder) const {
  if (graph_.shorter.empty() || !recorder.HasTensor("tokens")) return graph_.whole;
  const std::int64_t length = recorder.SequenceLength(recorder.Input("tokens"));
  const auto found = std::ranges::find(graph_.shorter, length, &GraphBody::length);
  return found == graph_.shorter.end() ? graph_.whole : *found;
}

std::vector<Shape> GraphNetwork::DroppedAt(std::int64_t length) const {
  Graph graph;
  const SampleSpec sample = CutTo(ExampleSample(), length);
  nn::Recorder recorder(graph, parameters_, sample, {});
  GraphRecorder values(recorder, graph_, indices_, statistics_);
  RecordBody(values);  // Record() reports its errors
  return values.dropped();
}

bool GraphNetwork::DropsTheSame() const {
  const auto tokens = std::ranges::find(graph_.inputs, "tokens", &GraphTensor::name);
  if (tokens == graph_.inputs.end() || !HasValuePerToken(*tokens)) return true;
  return std::ranges::all_of(graph_.shorter, [&](const GraphBody& body) {
    return std::ranges::equal(dropped_, DroppedAt(body.length),
                              [&](const Shape& whole, const Shape& pieces) {
                                return IsCutFrom(whole, tokens->sizes[1], pieces, body.length);
                              });
  });
}

ValueId GraphNetwork::Record(nn::Recorder& recorder) const {
  GraphRecorder values(recorder, graph_, indices_, statistics_);
  return RecordBody(values);
}

ValueId GraphNetwork::RecordBody(GraphRecorder& values) const {
  nn::Recorder& recorder = values.recorder();
  const GraphBody& body = BodyFor(recorder);
  if (body.length > 0) values.set_whole_dropped(dropped_);
  for (GraphTensor input : graph_.inputs) {
    if (body.length > 0 && HasValuePerToken(input)) input.sizes[1] = body.length;
    values.AddInput(input);
    if (!values.ok()) return nn::kNoValue;
  }
  const std::vector<bool> alone = IsOnlyLiveValue(graph_, body);
  for (std::size_t i = 0; i < body.nodes.size(); ++i) {
    const GraphNode& node = body.nodes[i];
    values.Begin(node);
    GraphValue value = FindGraphOp(node.op)->record(values);
    if (!values.ok()) return nn::kNoValue;
    const bool ends_block = alone[i] && i + 1 < body.nodes.size() && !value.part;
    if (ends_block) recorder.EndBlock(value.id);
    values.Finish(std::move(value));
  }
  const GraphValue output = values.Value(body.output);
  const bool fits = (output.rank() == 2 || output.rank() == 3) && output.sizes[0] == -1 &&
                    output.sizes.back() > 0;
  if (!values.Expect(fits, "the output: expected [samples, width] or [samples, length, width]",
                     output)) {
    return nn::kNoValue;
  }
  return values.ok() ? values.Rows(output, RowMajor(output.rank()), 1) : nn::kNoValue;
}

SampleSpec GraphNetwork::ExampleSample() const {
  SampleSpec sample;
  const bool of_texts =
      std::ranges::find(graph_.inputs, "tokens", &GraphTensor::name) != graph_.inputs.end();
  for (const GraphTensor& input : graph_.inputs) {
    if (of_texts && input.name == kAttentionMask) {
      sample.tensors.push_back({"lengths", DType::kI32, {}});
      continue;
    }
    sample.tensors.push_back(
        {input.name, input.dtype, {input.sizes.begin() + 1, input.sizes.end()}});
  }
  for (const GraphNode& node : graph_.whole.nodes) {
    if (sample.Find(node.inputs[0]) == nullptr) continue;
    // The graph computes with them in f32.
    if (node.op == "numbers") sample.LimitVocabulary(node.inputs[0], kLargestExactId + 1);
    if (!node.op.starts_with("embedding")) continue;
    const auto table = indices_.find(node.inputs[1]);
    if (table == indices_.end()) continue;
    sample.LimitVocabulary(node.inputs[0], parameters_.specs()[table->second].shape[0]);
  }
  return sample;
}

WeightNames GraphNetwork::weight_names() const {
  WeightNames names;
  for (const GraphTensor& parameter : graph_.parameters) {
    for (const std::string& alias : parameter.aliases) names.tied[alias] = parameter.name;
  }
  names.copies = names.tied;
  return names;
}

std::string GraphNetwork::Describe() const {
  const auto constants = std::ranges::count_if(
      graph_.parameters, [](const GraphTensor& tensor) { return tensor.values != nullptr; });
  return StrCat("exported network, ", graph_.whole.nodes.size(), " ops, ",
                std::ssize(graph_.parameters) - constants, " parameters and buffers");
}

Result<Job> WithGraphDigest(Job job) {
  auto* graph = std::get_if<GraphSpec>(&job.model.architecture);
  if (graph == nullptr) return job;
  graph->path = std::get<GraphSpec>(WithAbsolutePaths(job).model.architecture).path;
  if (graph->digest) return job;
  GACCD_ASSIGN_OR_RETURN(const GraphFile file, ReadGraph(graph->path));
  graph->digest = file.digest;
  return job;
}

}  // namespace gaccd
