// The file of an exported network, DIR/graph.txtpb (proto/graph.proto), as plain structs. Its ops:
// graph_ops.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd {

struct GraphTensor {
  std::string name;
  DType dtype = DType::kF32;  // for inputs f32 or i32
  Shape sizes;                // for inputs the first is -1: the samples
  bool buffer = false;
  bool frozen = false;
  std::vector<std::string> aliases;
  std::shared_ptr<const std::vector<float>> values = nullptr;  // set for constants
};

struct GraphNode {
  std::string name;
  std::string op;
  std::vector<std::string> inputs;                            // "": omitted
  std::map<std::string, std::vector<std::int64_t>> integers;  // attributes
  std::map<std::string, double> numbers;
  std::string source;

  // "node 'conv2d_3' (layer1.0.conv1 (net.py:12))": for messages.
  [[nodiscard]] std::string Where() const;
};

// The nodes of a network, in topological order.
struct GraphBody {
  std::vector<GraphNode> nodes;
  std::string output;
  std::int64_t length = 0;  // for texts cut to this number of tokens; 0: not cut
};

struct GraphFile {
  std::vector<GraphTensor> inputs;
  std::vector<GraphTensor> parameters;
  GraphBody whole;
  std::vector<GraphBody> shorter;  // the same network for shorter texts, by ascending length
  std::string digest;              // of the text
};

[[nodiscard]] inline Status BadGraph(const std::string& message) {
  return {ErrorKind::kConfig, message};
}

// kConfig, with `name` and the node, for another version, names that are not unique or used before
// they are defined, invalid sizes, and constants that are not finite.
Result<GraphFile> ParseGraph(std::string_view text, const std::string& name);
// Parses the file in a folder, of at most kMaxGraphBytes. Errors: also kIo.
inline constexpr std::uint64_t kMaxGraphBytes = std::uint64_t{1} << 28;
Result<GraphFile> ReadGraph(const std::string& folder);

// The path of the initial weights next to it.
[[nodiscard]] std::string GraphWeightsFile(const std::string& folder);

}  // namespace gaccd
