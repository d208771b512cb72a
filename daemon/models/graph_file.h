// The file of an exported network, DIR/graph.txtpb (proto/graph.proto), as plain values. What its
// ops mean: graph_ops.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd {

struct GraphTensor {
  std::string name;
  DType dtype = DType::kF32;  // of an input: f32 or i32
  Shape sizes;                // of an input: the first is -1, the samples
  bool buffer = false;
  bool frozen = false;
  std::vector<std::string> aliases;
};

struct GraphNode {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;                            // "": left out
  std::map<std::string, std::vector<std::int64_t>> integers;  // attributes
  std::map<std::string, double> numbers;
  std::string source;

  // "node 'conv2d_3' (layer1.0.conv1 (net.py:12))": for messages.
  [[nodiscard]] std::string Where() const;
};

struct GraphFile {
  std::vector<GraphTensor> inputs;
  std::vector<GraphTensor> parameters;
  std::vector<GraphNode> nodes;
  std::string output;
  std::string digest;  // of the text
};

[[nodiscard]] inline Status BadGraph(const std::string& message) {
  return {ErrorKind::kConfig, message};
}

// Of a text of at most kMaxTextBytes. kConfig, with `name` and the node, for another version, names
// that are not unique or used before they are defined, and sizes that are no shapes.
Result<GraphFile> ParseGraph(std::string_view text, const std::string& name);
// That of a folder. kIo, too.
Result<GraphFile> ReadGraph(const std::string& folder);

// The initial weights next to it.
[[nodiscard]] std::string GraphWeightsFile(const std::string& folder);

}  // namespace gaccd
