#include "daemon/models/graph_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/tensor/flat_layout.h"
#include "proto/graph.pb.h"

namespace gaccd {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::int64_t kMaxConstant = std::int64_t{1} << 24;  // values
// Values of all constants that the file has as one value: a line of it may take 64 MB.
constexpr std::int64_t kMaxRepeated = std::int64_t{1} << 26;

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = StrCat(line + 1, ":", column + 1, ": ", message);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Sizes must be at least 1 or, if `samples`, -k.
Status CheckSizes(const Shape& sizes, bool samples) {
  Shape counts = sizes;
  for (std::int64_t& size : counts) {
    if (size == 0 || (size < 0 && !samples) || size < -std::int64_t{1 << 30}) {
      return BadGraph(StrCat("sizes: expected at least 1",
                             samples ? ", or -k for k times the samples" : "", ", found ",
                             ToString(sizes)));
    }
    size = std::abs(size);
  }
  if (sizes.size() > kMaxDimensions) {
    return BadGraph(StrCat("sizes: expected at most ", kMaxDimensions, ", found ", sizes.size()));
  }
  return CheckShape(counts, DType::kF32);
}

// One value per element, or one for all elements.
Result<std::shared_ptr<const std::vector<float>>> ConstantFromProto(
    const proto::GraphTensor& message, const Shape& sizes, const std::string& where) {
  const auto& values = message.value();
  const std::int64_t elements = Elements(sizes);
  if (elements > kMaxConstant || (values.size() != 1 && values.size() != elements) ||
      !std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    return BadGraph(StrCat(where, ": expected 1 or ", elements, " finite values, at most ",
                           kMaxConstant, ", found ", values.size()));
  }
  if (values.size() == 1) {
    return std::make_shared<const std::vector<float>>(static_cast<std::size_t>(elements),
                                                      values[0]);
  }
  return std::make_shared<const std::vector<float>>(values.begin(), values.end());
}

Result<GraphTensor> TensorFromProto(const proto::GraphTensor& message, bool input) {
  GraphTensor tensor{.name = message.name(),
                     .dtype = message.type() == proto::GraphTensor::I64 ? DType::kI32 : DType::kF32,
                     .sizes = {message.size().begin(), message.size().end()},
                     .buffer = message.buffer(),
                     .frozen = message.frozen(),
                     .aliases = {message.alias().begin(), message.alias().end()}};
  const std::string where = StrCat(input ? "input '" : "parameter '", tensor.name, "'");
  GACCD_RETURN_IF_ERROR(CheckSizes(tensor.sizes, input).WithContext(where));
  if (IsConstant(tensor.name) != (message.value_size() > 0)) {
    return BadGraph(StrCat(where, ": expected the values of a constant, named ", kConstantPrefix,
                           ".., or none"));
  }
  if (message.value_size() > 0) {
    GACCD_ASSIGN_OR_RETURN(tensor.values, ConstantFromProto(message, tensor.sizes, where));
  }
  const auto samples = [](std::int64_t size) { return size < 0; };
  if (input && (tensor.sizes.empty() || tensor.sizes[0] != -1 ||
                std::ranges::count_if(tensor.sizes, samples) != 1)) {
    return BadGraph(
        StrCat(where, ": expected the first size to be -1, found ", ToString(tensor.sizes)));
  }
  return tensor;
}

Result<GraphNode> NodeFromProto(const proto::GraphNode& message) {
  GraphNode node{.name = message.name(),
                 .op = message.op(),
                 .inputs = {message.input().begin(), message.input().end()},
                 .integers = {},
                 .numbers = {},
                 .source = message.source()};
  for (const proto::GraphAttribute& attribute : message.attribute()) {
    const std::string& name = attribute.name();
    if (node.integers.contains(name) || node.numbers.contains(name)) {
      return BadGraph(StrCat(node.Where(), ": two attributes are called '", name, "'"));
    }
    if (!attribute.has_number()) {
      node.integers[name] = {attribute.integer().begin(), attribute.integer().end()};
    } else if (std::isfinite(attribute.number()) && attribute.integer_size() == 0) {
      node.numbers[name] = attribute.number();
    } else {
      return BadGraph(
          StrCat(node.Where(), ": attribute '", name, "': expected integers or one finite number"));
    }
  }
  if (const auto size = node.integers.find("size"); size != node.integers.end()) {
    GACCD_RETURN_IF_ERROR(CheckSizes(size->second, true).WithContext(node.Where()));
  }
  return node;
}

Result<GraphBody> BodyFromProto(const google::protobuf::RepeatedPtrField<proto::GraphNode>& nodes,
                                const std::string& output, std::int64_t length) {
  GraphBody body{.nodes = {}, .output = output, .length = length};
  for (const proto::GraphNode& one : nodes) {
    GACCD_ASSIGN_OR_RETURN(GraphNode node, NodeFromProto(one));
    body.nodes.push_back(std::move(node));
  }
  return body;
}

// Checks that names are unique and defined before use, so there is no cycle.
Status CheckNames(const GraphFile& graph, const GraphBody& body) {
  std::set<std::string_view> known;
  const auto add = [&known](const std::string& name) -> Status {
    if (!name.empty() && known.insert(name).second) return Status::Ok();
    return BadGraph(name.empty() ? std::string("a name is empty")
                                 : StrCat("two values are called '", name, "'"));
  };
  for (const auto* tensors : {&graph.inputs, &graph.parameters}) {
    for (const GraphTensor& tensor : *tensors) GACCD_RETURN_IF_ERROR(add(tensor.name));
  }
  for (const GraphNode& node : body.nodes) {
    for (const std::string& input : node.inputs) {
      if (input.empty() || known.contains(input)) continue;
      return BadGraph(StrCat(node.Where(), ": no value before it is called '", input, "'"));
    }
    GACCD_RETURN_IF_ERROR(add(node.name).WithContext(node.Where()));
  }
  if (known.contains(body.output)) return Status::Ok();
  return BadGraph(StrCat("output: no value is called '", body.output, "'"));
}

Result<GraphFile> GraphFromProto(const proto::ExportedGraph& message) {
  if (message.version() != kVersion) {
    return BadGraph(StrCat("version: expected ", kVersion, ", found ", message.version(),
                           ": export the model again with the gaccd package of this version"));
  }
  GraphFile graph;
  for (const proto::GraphTensor& input : message.input()) {
    GACCD_ASSIGN_OR_RETURN(GraphTensor tensor, TensorFromProto(input, true));
    graph.inputs.push_back(std::move(tensor));
  }
  std::int64_t repeated = 0;
  for (const proto::GraphTensor& parameter : message.parameter()) {
    GACCD_ASSIGN_OR_RETURN(GraphTensor tensor, TensorFromProto(parameter, false));
    if (parameter.value_size() == 1) repeated += std::ssize(*tensor.values);
    if (repeated > kMaxRepeated) {
      return BadGraph(StrCat("'", tensor.name, "': expected at most ", kMaxRepeated,
                             " values of all constants that are one value, found ", repeated));
    }
    graph.parameters.push_back(std::move(tensor));
  }
  GACCD_ASSIGN_OR_RETURN(graph.whole, BodyFromProto(message.node(), message.output(), 0));
  GACCD_RETURN_IF_ERROR(CheckNames(graph, graph.whole));
  for (const proto::ShorterGraph& one : message.shorter()) {
    const std::string where = StrCat("for ", one.length(), " tokens");
    const std::int64_t before = graph.shorter.empty() ? 0 : graph.shorter.back().length;
    if (one.length() <= before) {
      return BadGraph(StrCat("shorter: expected ascending lengths of at least 1, found ",
                             one.length(), " after ", before));
    }
    auto body = BodyFromProto(one.node(), one.output(), one.length());
    if (!body.ok()) return body.status().WithContext(where);
    GACCD_RETURN_IF_ERROR(CheckNames(graph, *body).WithContext(where));
    graph.shorter.push_back(*std::move(body));
  }
  return graph;
}

}  // namespace

std::string GraphNode::Where() const {
  return StrCat("node '", name, "'", source.empty() ? "" : StrCat(" (", source, ")"));
}

Result<GraphFile> ParseGraph(std::string_view text, const std::string& name) {
  proto::ExportedGraph message;
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (!parser.ParseFromString(std::string(text), &message)) {
    return BadGraph(StrCat(name, ":", errors.text().empty() ? " is no graph" : errors.text()));
  }
  auto graph = GraphFromProto(message);
  if (!graph.ok()) return graph.status().WithContext(name);
  graph->digest = Digest(text);
  return graph;
}

Result<GraphFile> ReadGraph(const std::string& folder) {
  const std::string path = folder + "/graph.txtpb";
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > kMaxGraphBytes) {
    return BadGraph(StrCat("'", path, "' is too large: at most ", kMaxGraphBytes, " bytes, found ",
                           file.size()));
  }
  std::string text(file.size(), '\0');
  GACCD_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return ParseGraph(text, path);
}

std::string GraphWeightsFile(const std::string& folder) { return folder + "/weights.safetensors"; }

}  // namespace gaccd
