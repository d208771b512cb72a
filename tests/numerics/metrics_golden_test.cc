// Whole evaluations against scikit-learn and PyTorch (tests/golden/make_metrics.py): the model's
// answers on the CPU, any number of ranks with shards of unequal sizes, batches of unequal sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/data/index_source.h"
#include "daemon/eval/evaluator.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kGoldenClasses = 5;
constexpr std::int64_t kLength = 3;
constexpr std::int64_t kOutputs = 2;

struct Golden {
  Golden() {
    std::ifstream in(GACCD_GOLDEN_DIR "/metrics.txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string key;
      std::string name;
      words >> key;
      if (key == "value") words >> name >> plain[name];
      if (key == "weighted") words >> name >> weighted[name];
      if (key != "logits" && key != "sample" && key != "target") continue;
      std::vector<float>& row = rows[key].emplace_back();
      for (float number = 0; words >> number;) row.push_back(number);
    }
  }
  std::map<std::string, std::vector<std::vector<float>>> rows;  // "logits", "sample", "target"
  std::map<std::string, double> plain, weighted;
};

// Rows of numbers, cut into the tensors of a sample.
class RowsDataset final : public Dataset {
 public:
  RowsDataset(std::vector<std::vector<float>> rows, SampleSpec spec)
      : rows_(std::move(rows)), spec_(std::move(spec)) {}
  // Samples [shard.first, shard.first + shard.count) alone.
  [[nodiscard]] RowsDataset Part(const EvalShard& shard) const {
    const auto first = rows_.begin() + shard.first;
    return {{first, first + shard.count}, spec_};
  }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(rows_); }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const float* from = rows_[static_cast<std::size_t>(indices[i])].data();
      for (std::size_t t = 0; t < spec_.tensors.size(); ++t) {
        const auto count = static_cast<std::size_t>(spec_.tensors[t].elements());
        if (spec_.tensors[t].dtype == DType::kF32) {
          std::copy_n(from, count, out.tensor<float>(t) + i * count);
        } else {
          std::copy_n(from, count, out.tensor<std::int32_t>(t) + i * count);
        }
        from += count;
      }
    }
  }

 private:
  std::vector<std::vector<float>> rows_;
  SampleSpec spec_;
};

// A model and data whose answers are those of the file.
struct EvalSetting {
  ModelSpec model;
  std::vector<float> parameters;
  RowsDataset data;
  std::vector<MetricSpec> metrics;
};

// The table of the embedding is the logits.
EvalSetting TokenSetting(const Golden& golden, bool weighted) {
  const auto& logits = golden.rows.at("logits");
  EvalSetting setting{
      .model = {.layer = {{"table", EmbeddingSpec{std::ssize(logits), kGoldenClasses}}}},
      .data = RowsDataset(
          golden.rows.at("sample"),
          {.tensors = {{"tokens", DType::kI32, {kLength}}, {"labels", DType::kI32, {kLength}}},
           .classes = kGoldenClasses,
           .vocabulary = std::ssize(logits)}),
      .metrics = {AccuracySpec{}, TopKSpec{.k = 2}, F1MacroSpec{}, F1MicroSpec{}, MatthewsSpec{},
                  PerplexitySpec{}}};
  if (weighted) {
    SampleSpec spec = setting.data.spec();
    spec.tensors.push_back({"weights", DType::kF32, {kLength}});
    setting.data = RowsDataset(golden.rows.at("sample"), spec);
  }
  for (const auto& row : logits) {
    setting.parameters.insert(setting.parameters.end(), row.begin(), row.end());
  }
  return setting;
}

// A layer that hands on its input: the predictions are the features.
EvalSetting TargetSetting(const Golden& golden) {
  return {.model = {.layer = {{"copy", LinearSpec{kOutputs, kOutputs, false}}},
                    .loss = MeanSquaredErrorSpec{}},
          .parameters = {1, 0, 0, 1},
          .data = RowsDataset(golden.rows.at("target"), TargetSample({kOutputs}, kOutputs)),
          .metrics = {MseSpec{}, MaeSpec{}, R2Spec{}}};
}

using MetricValues = std::map<std::string, double>;

Result<MetricValues> EvaluateOn(Communicator& comm, const EvalSetting& setting, const Dataset& data,
                                std::int64_t batch) {
  Evaluator evaluator(comm, data, batch, "tokens", setting.metrics);
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::Make(setting.model, data.spec()));
  GACCD_ASSIGN_OR_RETURN(const auto engine,
                         MakeEngine(comm, model,
                                    {.replica = {.eval_batches = evaluator.BatchSizes()},
                                     .optimizer = {.lr = 1, .kind = SgdSpec{}}}));
  std::vector<float> parameters(static_cast<std::size_t>(model.layout().size()));
  std::ranges::copy(setting.parameters, parameters.begin());
  GACCD_RETURN_IF_ERROR(engine->SetParameters(parameters));
  GACCD_ASSIGN_OR_RETURN(const auto record, evaluator.Evaluate(*engine, {}, nullptr, {}));
  MetricValues values;
  for (const auto& [name, value] : record->metrics) values[name] = value;
  return values;
}

// The values of every rank's shard by itself, as if there were no others.
std::vector<MetricValues> OfShards(const EvalSetting& setting, int ranks) {
  std::vector<MetricValues> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const RowsDataset data = setting.data.Part(MakeEvalShard(setting.data.size(), rank, ranks));
    const auto values = EvaluateOn(*MakeSingle(), setting, data, 4);
    EXPECT_TRUE(values.ok()) << values.status().message();
    if (values.ok()) shards.push_back(*values);
  }
  return shards;
}

double ComputeMean(const std::vector<MetricValues>& shards, const std::string& name) {
  double sum = 0;
  for (const MetricValues& values : shards) sum += values.at(name);
  return sum / static_cast<double>(shards.size());
}

bool IsOfCounts(const std::string& name) {
  return name != "perplexity" && name != "mse" && name != "mae" && name != "r2";
}

void ExpectGolden(const EvalSetting& setting, const MetricValues& golden) {
  const auto alone = ValueOrThrow(EvaluateOn(*MakeSingle(), setting, setting.data, 41));
  ASSERT_EQ(alone.size(), setting.metrics.size());
  for (const auto& [name, value] : alone) {
    // The loss is a sum of f32 logarithms; counts, and targets in f64, are as exact as the file.
    EXPECT_NEAR(value, golden.at(name), name == "perplexity" ? 1e-6 : 1e-11) << name;
  }
  for (const int ranks : {1, 2, 3, 5, 7}) {
    for (const std::int64_t batch : {1, 2, 4, 9}) {
      std::mutex mutex;
      ExpectOk(RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
        GACCD_ASSIGN_OR_RETURN(const MetricValues found,
                               EvaluateOn(comm, setting, setting.data, batch));
        const std::scoped_lock lock(mutex);
        for (const auto& [name, value] : found) {
          const double tolerance = IsOfCounts(name) ? 0 : 1e-11;
          EXPECT_NEAR(value, alone.at(name), tolerance)
              << name << ", " << ranks << " ranks, batch " << batch;
        }
        return Status::Ok();
      }));
    }
  }
}

// What another trainer would say: the mean of what each rank, or each batch, has by itself.
void ExpectMeansAreWrong(const EvalSetting& setting, const MetricValues& golden) {
  for (const auto& [name, value] : golden) {
    if (name == "mse" || name == "mae") continue;  // wrong only by the one sample more of a rank
    for (const int ranks : {3, 7}) {
      EXPECT_GT(std::abs(ComputeMean(OfShards(setting, ranks), name) - value), 1e-4) << name;
    }
  }
}

TEST(MetricsGoldenTest, TokenMetricsEqualReference) {
  const Golden golden;
  ASSERT_EQ(golden.plain.size(), 9U);
  MetricValues expected = golden.plain;
  for (const char* name : {"mse", "mae", "r2"}) expected.erase(name);
  const EvalSetting setting = TokenSetting(golden, false);
  ExpectGolden(setting, expected);
  ExpectMeansAreWrong(setting, expected);
}

TEST(MetricsGoldenTest, WeightedTokenMetricsEqualReference) {
  const Golden golden;
  const EvalSetting setting = TokenSetting(golden, true);
  ExpectGolden(setting, golden.weighted);
  ExpectMeansAreWrong(setting, golden.weighted);
}

TEST(MetricsGoldenTest, TargetMetricsEqualReference) {
  const Golden golden;
  ExpectGolden(TargetSetting(golden), golden.plain);
  ExpectMeansAreWrong(TargetSetting(golden), {{"r2", golden.plain.at("r2")}});
}

}  // namespace
}  // namespace gaccd
