// The types of values of exported networks in 16 bits.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/models/graph_network.h"
#include "daemon/replica/model.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// A training on texts of 3 tokens with one of 5 classes.
Result<TrainingGraph> RecordedInBf16(std::string_view text) {
  GACCD_ASSIGN_OR_RETURN(auto file, ParseGraph(std::string(text), "g"));
  GACCD_ASSIGN_OR_RETURN(auto network, GraphNetwork::Make(std::move(file), NormStatistics{}, "g"));
  const SampleSpec sample{.tensors = {{"tokens", DType::kI32, {3}}, {"labels", DType::kI32, {}}},
                          .classes = 5,
                          .vocabulary = 300};
  GACCD_ASSIGN_OR_RETURN(const Model model,
                         Model::Make(std::move(network), LossKind::kSoftmaxCrossEntropy, sample));
  return model.RecordTraining({2}, Precision::kBF16);
}

// The type of the first output, by function.
std::multimap<std::string, DType> TypesInBf16(std::string_view text) {
  const auto recorded = RecordedInBf16(text);
  EXPECT_TRUE(recorded.ok()) << recorded.status().message();
  if (!recorded.ok()) return {};
  std::multimap<std::string, DType> types;
  for (const Node& node : recorded->graph.nodes()) {
    types.emplace(node.function->name(), recorded->graph.value(node.outputs[0]).spec.dtype);
  }
  return types;
}

TEST(GraphTypesTest, CountsAndIdsAreF32WhereActivationsHave16Bits) {
  constexpr std::string_view kIds = R"graph(version: 1
input { name: "tokens" type: I64 size: -1 size: 3 }
parameter { name: "table" size: 900 size: 4 }
parameter { name: "constant:0" size: 3 size: 3 value: [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0] }
node { name: "ids" op: "numbers" input: "tokens" }
node { name: "counts" op: "linear" input: "ids" input: "constant:0"
  attribute { name: "in_out" integer: 1 } }
node { name: "both" op: "cat" input: "ids" input: "counts" attribute { name: "dim" integer: 1 } }
node { name: "rows" op: "embedding" input: "both" input: "table" }
node { name: "column" op: "view" input: "both"
  attribute { name: "size" integer: -1 integer: 6 integer: 1 } }
node { name: "mixed" op: "cat" input: "rows" input: "column" attribute { name: "dim" integer: 2 } }
node { name: "y" op: "mean_rows" input: "mixed" }
output: "y"
)graph";
  const auto types = TypesInBf16(kIds);
  const auto [first, end] = types.equal_range("concat");
  ASSERT_EQ(std::distance(first, end), 2);
  EXPECT_EQ(first->second, DType::kF32);
  EXPECT_EQ(std::next(first)->second, DType::kBF16);  // of numbers and activations
  EXPECT_EQ(types.find("linear")->second, DType::kF32);
}

// Experts that activations choose: their numbers are exact in 16 bits as far as a table is small.
TEST(GraphTypesTest, ActivationsOf16BitsChooseRowsOfSmallTables) {
  const auto choosing = [](int rows) {
    return StrCat(R"graph(version: 1
input { name: "tokens" type: I64 size: -1 size: 3 }
parameter { name: "table" size: 300 size: 4 }
parameter { name: "experts" size: )graph",
                  rows, R"graph( size: 5 }
node { name: "rows" op: "embedding" input: "tokens" input: "table" }
node { name: "below" op: "less" input: "rows" attribute { name: "than" number: 0.0 } }
node { name: "places" op: "view" input: "below"
  attribute { name: "size" integer: -1 integer: 12 } }
node { name: "chosen" op: "embedding" input: "places" input: "experts" }
node { name: "y" op: "mean_rows" input: "chosen" }
output: "y"
)graph");
  };
  const auto types = TypesInBf16(choosing(256));
  EXPECT_EQ(types.count("numbers_to_ids"), 1U);
  EXPECT_EQ(types.count("embedding"), 2U);
  EXPECT_THAT(RecordedInBf16(choosing(257)).status(),
              IsError(ErrorKind::kConfig, "node 'chosen'", "at most 256 rows", "precision: F32"));
}

TEST(GraphTypesTest, ATableMayBeComputedIn16Bits) {
  const auto types = TypesInBf16(R"graph(version: 1
input { name: "tokens" type: I64 size: -1 size: 3 }
parameter { name: "table" size: 300 size: 5 }
node { name: "computed" op: "softmax" input: "table" }
node { name: "rows" op: "embedding" input: "tokens" input: "computed" }
node { name: "y" op: "mean_rows" input: "rows" }
output: "y"
)graph");
  ASSERT_EQ(types.count("embedding"), 1U);
  EXPECT_EQ(types.find("embedding")->second, DType::kBF16);
  EXPECT_EQ(types.count("embedding_gradient"), 1U);
}

// As BERT's segments where the data have none.
TEST(GraphTypesTest, KnownRowsOfAnEmbeddingAreAddedInBf16) {
  const auto types = TypesInBf16(R"graph(version: 1
input { name: "tokens" type: I64 size: -1 size: 3 }
parameter { name: "table" size: 300 size: 5 }
parameter { name: "segments" size: 2 size: 5 }
parameter { name: "constant:0" size: 1 size: 3 value: [0.0, 1.0, 1.0] }
node { name: "rows" op: "embedding" input: "tokens" input: "table" }
node { name: "known" op: "embedding" input: "constant:0" input: "segments" }
node { name: "sum" op: "add" input: "rows" input: "known" }
node { name: "y" op: "mean_rows" input: "sum" }
output: "y"
)graph");
  ASSERT_EQ(types.count("combine_add"), 1U);
  EXPECT_EQ(types.find("combine_add")->second, DType::kBF16);
}

}  // namespace
}  // namespace gaccd
