// The contrastive loss over the whole effective batch: ranks and micro-batches of any sizes give
// the gradient of one big batch, which is taken by central differences of the definition in f64.
// The mistakes of others fail the same comparison.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/engine/engine.h"
#include "daemon/selftest/update_mistakes.h"
#include "daemon/train/update.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr double kSamePairs = 1e-6;
constexpr std::uint64_t kSeed = 5;
constexpr std::int64_t kRowFeatures = 7;
constexpr std::int64_t kRowTargets = 5;
constexpr std::int64_t kHidden = 9;
constexpr std::int64_t kWidth = 6;

ModelSpec Spec() {
  const auto tower = [](const char* input, std::int64_t in) {
    return TowerSpec{input, {{"fc", LinearSpec{in, kHidden, true}}, {"tanh", TanhSpec{}}}};
  };
  return {.loss = ContrastiveSpec{},
          .architecture = DualEncoderSpec{.a = tower("features", kRowFeatures),
                                          .b = tower("targets", kRowTargets),
                                          .width = kWidth}};
}

struct Case {
  const char* name;
  std::int64_t ranks, micro, target;
};
const Case kCases[] = {
    {"hundred_samples", 7, 4, 100}, {"one_more_than_divides", 7, 4, 57},
    {"fewer_than_ranks", 7, 4, 5},  {"one_rank", 1, 3, 20},
    {"one_big_batch", 1, 100, 100}, {"one_sample_at_a_time", 3, 1, 16},
};

// What all ranks share; read only.
struct PairSetting {
  explicit PairSetting(const Case& test)
      : plan(*Plan::Make({.nodes = 1,
                          .gpus_per_node = test.ranks,
                          .micro_batch = test.micro,
                          .target_batch = test.target})),
        data(*OpenDataset(
            SyntheticSpec{.samples = 200, .features = kRowFeatures, .outputs = kRowTargets}, {})),
        model(*Model::Make(Spec(), data->spec())),
        parameters(static_cast<std::size_t>(model.layout().size())) {
    model.Initialize(kSeed, parameters);
  }

  [[nodiscard]] Result<std::unique_ptr<Prefetcher>> Batches(int rank, std::int64_t updates) const {
    GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                           UpdateSchedule::Make({.dataset_size = data->size(),
                                                 .batch = plan.effective_batch(),
                                                 .max_updates = updates}));
    const SampleOrder order(kSeed, data->size(), /*shuffle=*/false);
    GACCD_ASSIGN_OR_RETURN(TrainIndices indices,
                           TrainIndices::Make(order, schedule, plan, rank, 0, /*passes=*/2));
    return Prefetcher::Start(*data, std::make_unique<TrainIndices>(std::move(indices)));
  }

  Plan plan;
  std::unique_ptr<Dataset> data;
  Model model;
  std::vector<float> parameters;
};

// The definition in f64: the loss of the first `samples` samples for parameters by name.
class Definition {
 public:
  explicit Definition(const PairSetting& setting)
      : layout_(setting.model.layout()),
        samples_(setting.plan.effective_batch()),
        values_(setting.parameters.begin(), setting.parameters.end()) {
    BatchMemory batch(setting.data->spec(), samples_);
    for (std::int64_t i = 0; i < samples_; ++i) batch.ids()[static_cast<std::size_t>(i)] = i;
    setting.data->Gather(batch.ids(), batch.view());
    const float* x = batch.view().tensor<float>(0);
    const float* y = batch.view().tensor<float>(1);
    x_.assign(x, x + samples_ * kRowFeatures);
    y_.assign(y, y + samples_ * kRowTargets);
  }

  // Central differences, of the elements of one parameter.
  std::vector<double> ComputeGradient(const FlatEntry& entry) {
    constexpr double kStep = 1e-5;
    std::vector<double> gradient;
    for (std::int64_t i = 0; i < entry.elements; ++i) {
      double& value = values_[static_cast<std::size_t>(entry.offset + i)];
      const double before = value;
      value = before + kStep;
      const double more = Loss();
      value = before - kStep;
      const double less = Loss();
      value = before;
      gradient.push_back((more - less) / (2 * kStep));
    }
    return gradient;
  }

  [[nodiscard]] double Loss() const {
    const std::vector<double> a = Rows("a", x_, kRowFeatures);
    const std::vector<double> b = Rows("b", y_, kRowTargets);
    const double scale = std::exp(*Find("logit_scale"));
    std::vector<double> along(static_cast<std::size_t>(samples_));
    std::vector<double> across(along.size());
    double same = 0;
    for (std::size_t i = 0; i < along.size(); ++i) {
      for (std::size_t j = 0; j < along.size(); ++j) {
        double cosine = 0;
        for (std::size_t d = 0; d < kWidth; ++d) cosine += a[i * kWidth + d] * b[j * kWidth + d];
        along[i] += std::exp(scale * cosine);
        across[j] += std::exp(scale * cosine);
        if (i == j) same += scale * cosine;
      }
    }
    double sum = -same;
    for (std::size_t i = 0; i < along.size(); ++i) {
      sum += (std::log(along[i]) + std::log(across[i])) / 2;
    }
    return sum / static_cast<double>(samples_);
  }

 private:
  [[nodiscard]] const double* Find(const std::string& name) const {
    return values_.data() + layout_.Find(name)->offset;
  }
  [[nodiscard]] std::vector<double> Rows(const std::string& tower, const std::vector<double>& in,
                                         std::int64_t width) const {
    const double* weight = Find(tower + ".fc.weight");
    const double* bias = Find(tower + ".fc.bias");
    const double* projection = Find(tower + ".projection.weight");
    std::vector<double> rows;
    for (std::int64_t i = 0; i < samples_; ++i) {
      std::vector<double> hidden;
      for (std::int64_t h = 0; h < kHidden; ++h) {
        double sum = bias[h];
        for (std::int64_t d = 0; d < width; ++d) {
          sum += weight[h * width + d] * in[static_cast<std::size_t>(i * width + d)];
        }
        hidden.push_back(std::tanh(sum));
      }
      std::vector<double> row;
      double squares = 0;
      for (std::int64_t o = 0; o < kWidth; ++o) {
        double sum = 0;
        for (std::int64_t h = 0; h < kHidden; ++h) {
          sum += projection[o * kHidden + h] * hidden[static_cast<std::size_t>(h)];
        }
        row.push_back(sum);
        squares += sum * sum;
      }
      for (const double value : row) rows.push_back(value / std::sqrt(squares));
    }
    return rows;
  }

  const FlatLayout& layout_;
  std::int64_t samples_;
  std::vector<double> values_;
  std::vector<double> x_, y_;
};

// |found - expected| / |expected| of every parameter.
using Distances = std::map<std::string, double>;
using Reference = std::map<std::string, std::vector<double>>;

Reference ComputeReference(const PairSetting& setting) {
  Reference reference;
  Definition definition(setting);
  for (const FlatEntry& entry : setting.model.layout().entries()) {
    reference[entry.name] = definition.ComputeGradient(entry);
  }
  return reference;
}

Distances Compare(const PairSetting& setting, const Reference& reference,
                  std::span<const float> gradients) {
  Distances distances;
  for (const FlatEntry& entry : setting.model.layout().entries()) {
    const std::vector<double>& expected = reference.at(entry.name);
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double found = double{gradients[static_cast<std::size_t>(entry.offset) + i]};
      difference += std::pow(found - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    distances[entry.name] = std::sqrt(difference / norm);
  }
  return distances;
}

double Worst(const Distances& distances) {
  double worst = 0;
  for (const auto& [name, distance] : distances) worst = std::max(worst, distance);
  return worst;
}

using Body = std::function<Result<std::vector<float>>(Communicator& comm)>;

// The largest distances over the ranks.
Distances RunRanks(const PairSetting& setting, const Body& body) {
  const Reference reference = ComputeReference(setting);
  std::mutex mutex;
  Distances worst;
  const Status status =
      RunThreadRanks(static_cast<int>(setting.plan.world()), {}, [&](Communicator& comm) -> Status {
        GACCD_ASSIGN_OR_RETURN(const std::vector<float> gradients, body(comm));
        const std::lock_guard lock(mutex);
        for (const auto& [name, distance] : Compare(setting, reference, gradients)) {
          worst[name] = std::max(worst[name], distance);
        }
        return Status::Ok();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return worst;
}

ReplicaOptions MakeReplicaOptions(const Plan& plan, int rank) {
  ReplicaOptions sizes{.micro_steps_per_update = plan.accum_steps()};
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    if (plan.MicroBatch(rank, step) > 0) sizes.micro_batches.insert(plan.MicroBatch(rank, step));
  }
  return sizes;
}

Result<std::unique_ptr<Engine>> MakePairEngine(const PairSetting& setting, Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(auto engine,
                         MakeEngine(comm, setting.model,
                                    {.replica = MakeReplicaOptions(setting.plan, comm.rank()),
                                     .optimizer = {.lr = 0.01, .kind = AdamWSpec{}}}));
  GACCD_RETURN_IF_ERROR(engine->SetParameters(setting.parameters));
  return engine;
}

class ContrastiveTest : public ::testing::TestWithParam<Case> {};

TEST_P(ContrastiveTest, GradientEqualsOneBigBatch) {
  const PairSetting setting(GetParam());
  const double loss = Definition(setting).Loss();
  const Distances distances =
      RunRanks(setting, [&](Communicator& comm) -> Result<std::vector<float>> {
        GACCD_ASSIGN_OR_RETURN(auto engine, MakePairEngine(setting, comm));
        GACCD_ASSIGN_OR_RETURN(auto batches, setting.Batches(comm.rank(), 1));
        GACCD_RETURN_IF_ERROR(RunUpdate(*engine, *batches, TwoPassContrastive(setting.plan), {}));
        GACCD_ASSIGN_OR_RETURN(const auto result, engine->PopResult(true));
        EXPECT_NEAR(result->loss, loss, 1e-6 * loss);
        EXPECT_EQ(result->samples, setting.plan.effective_batch());
        std::vector<float> gradients(setting.parameters.size());
        GACCD_RETURN_IF_ERROR(engine->GetGradients(gradients));
        return gradients;
      });
  for (const auto& [name, distance] : distances) EXPECT_LE(distance, kSamePairs) << name;
  std::printf("  largest distance %.2g\n", Worst(distances));
}

TEST_P(ContrastiveTest, DetectsCommonMistakes) {
  const PairSetting setting(GetParam());
  const auto distance_of = [&](ContrastiveMistake mistake) {
    return Worst(RunRanks(setting, [&](Communicator& comm) -> Result<std::vector<float>> {
      GACCD_ASSIGN_OR_RETURN(auto batches, setting.Batches(comm.rank(), 1));
      return ContrastiveGradient(comm, setting.model, setting.parameters, setting.plan, *batches,
                                 mistake);
    }));
  };
  EXPECT_LE(distance_of(ContrastiveMistake::kNone), kSamePairs);
  for (const ContrastiveMistake mistake : kContrastiveMistakes) {
    if (!HasEffect(mistake, setting.plan)) continue;
    EXPECT_GT(distance_of(mistake), 100 * kSamePairs) << Name(mistake);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContrastiveTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Several updates with AdamW.
TEST(ContrastiveUpdatesTest, RanksTrainLikeOneRank) {
  const auto train = [](const Case& test) {
    const PairSetting setting(test);
    std::mutex mutex;
    std::vector<std::vector<float>> parameters;
    const Status status =
        RunThreadRanks(static_cast<int>(test.ranks), {}, [&](Communicator& comm) -> Status {
          constexpr std::int64_t kUpdates = 5;
          GACCD_ASSIGN_OR_RETURN(auto engine, MakePairEngine(setting, comm));
          GACCD_ASSIGN_OR_RETURN(auto batches, setting.Batches(comm.rank(), kUpdates));
          const UpdateProgram program = TwoPassContrastive(setting.plan);
          for (std::int64_t u = 0; u < kUpdates; ++u) {
            GACCD_RETURN_IF_ERROR(RunUpdate(*engine, *batches, program, {.update = u, .lr = 0.01}));
            GACCD_RETURN_IF_ERROR(engine->PopResult(true).status());
          }
          std::vector<float> found(setting.parameters.size());
          GACCD_RETURN_IF_ERROR(engine->GetParameters(found));
          const std::lock_guard lock(mutex);
          parameters.push_back(std::move(found));
          return Status::Ok();
        });
    EXPECT_TRUE(status.ok()) << status.message();
    return parameters;
  };
  const std::vector<float> one = train({"", 1, 40, 40}).at(0);
  for (const Case& test : {Case{"", 3, 4, 40}, Case{"", 7, 3, 40}}) {
    const auto ranks = train(test);
    for (const std::vector<float>& found : ranks) {
      EXPECT_EQ(found, ranks[0]) << "replicas differ";
      for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(found[i], one[i], 2e-6) << i;
    }
  }
}

// As CLIP: log t is cut after the step.
TEST(ContrastiveUpdatesTest, ScaleStaysAtLimit) {
  PairSetting setting({"", 1, 20, 20});
  const auto scale = static_cast<std::size_t>(setting.model.contrastive()->log_scale);
  setting.parameters[scale] = std::log(150.0F);
  const auto comm = MakeSingle();
  auto engine = ValueOrThrow(MakePairEngine(setting, *comm));
  auto batches = setting.Batches(0, 1);
  ASSERT_TRUE(RunUpdate(*engine, **batches, TwoPassContrastive(setting.plan), {.lr = 1e-6}).ok());
  ASSERT_TRUE(engine->PopResult(true).ok());
  ASSERT_TRUE(engine->GetParameters(setting.parameters).ok());
  EXPECT_EQ(setting.parameters[scale], std::log(100.0F));
}

// Offenders are looked for one micro-batch at a time.
TEST(ContrastiveUpdatesTest, ProbeComparesSamplesOfItsMicroBatch) {
  const PairSetting setting({"", 1, 10, 20});
  const auto comm = MakeSingle();
  auto engine = ValueOrThrow(MakePairEngine(setting, *comm));
  auto batches = setting.Batches(0, 1);
  const BatchView* batch = (*batches)->Next();
  const auto loss = ValueOrThrow(engine->Probe(*batch));
  EXPECT_NEAR(loss / 10, Definition(PairSetting({"", 1, 10, 10})).Loss(), 1e-5);
  batch->tensor<float>(0)[0] = std::nanf("");
  EXPECT_TRUE(std::isnan(engine->Probe(*batch).value()));
}

}  // namespace
}  // namespace gaccd
