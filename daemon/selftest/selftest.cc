#include "daemon/selftest/selftest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/comm/threads.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/replica/model.h"
#include "daemon/replica/replica.h"
#include "daemon/selftest/selftest_limits.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

constexpr std::int64_t kFeatures = 32;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kOutputs = 8;
constexpr std::uint64_t kSeed = 7;
constexpr double kMargin = 1000;  // a wrong weight of some samples changes the whole gradient less

enum class Mistake : std::uint8_t { kMeanOfMeans, kLastOnly };

ModelSpec SelftestModel() {
  return {.layer = {{"fc1", LinearSpec{kFeatures, kHidden, true}},
                    {"relu", ReluSpec{}},
                    {"fc2", LinearSpec{kHidden, kOutputs, true}}},
          .loss = MeanSquaredErrorSpec{}};
}

// Sequences with different numbers of labels, at least one each.
class RaggedTokens final : public Dataset {
 public:
  static constexpr std::int64_t kLength = 8;
  static constexpr std::int64_t kVocabulary = 16;
  static constexpr std::int64_t kClasses = 5;

  explicit RaggedTokens(std::int64_t samples) : samples_(samples) {}
  [[nodiscard]] std::int64_t size() const override { return samples_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    auto* token = out.tensor<std::int32_t>(0);
    auto* label = out.tensor<std::int32_t>(1);
    for (const std::int64_t sample : indices) {
      const std::int64_t labelled = 1 + sample * sample * 5 % kLength;
      for (std::int64_t t = 0; t < kLength; ++t) {
        *token++ = static_cast<std::int32_t>((sample * 5 + t * t) % kVocabulary);
        *label++ = static_cast<std::int32_t>(t < labelled ? (sample * 7 + t * 3) % kClasses : -100);
      }
    }
  }

 private:
  std::int64_t samples_;
  SampleSpec spec_{
      .tensors = {{"tokens", DType::kI32, {kLength}}, {"labels", DType::kI32, {kLength}}},
      .classes = kClasses,
      .vocabulary = kVocabulary};
};

// Small, because every token adds to a row of the table: f32 would round the sum of a large batch.
constexpr std::int64_t kTokenBatch = 16;

ModelSpec TokenModel() {
  constexpr std::int64_t kWidth = 12;
  return {.layer = {{"table", EmbeddingSpec{RaggedTokens::kVocabulary, kWidth}},
                    {"head", LinearSpec{kWidth, RaggedTokens::kClasses, true}}},
          .loss = SoftmaxCrossEntropySpec{}};
}

// Shared by all ranks; read-only.
struct Setting {
  const Dataset& data;
  const Model& model;
  const std::vector<SelftestCase>& cases;
  const std::vector<std::vector<float>>& references;  // by case
};

// Infinity instead of NaN, which std::max() would ignore.
double Deviation(std::span<const float> actual, std::span<const float> reference) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - reference[i];
    difference += d * d;
    norm += static_cast<double>(reference[i]) * reference[i];
  }
  const double deviation = std::sqrt(difference / norm);
  return std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation;
}

// This rank's micro-batches of one update.
Result<std::unique_ptr<Prefetcher>> OneUpdate(const Dataset& data, const Plan& plan, int rank) {
  GACCD_ASSIGN_OR_RETURN(
      const UpdateSchedule schedule,
      UpdateSchedule::Make(
          {.dataset_size = data.size(), .batch = plan.effective_batch(), .max_updates = 1}));
  const SampleOrder order(kSeed, data.size(), /*shuffle=*/true);
  GACCD_ASSIGN_OR_RETURN(TrainIndices indices, TrainIndices::Make(order, schedule, plan, rank));
  return Prefetcher::Start(data, std::make_unique<TrainIndices>(std::move(indices)), {.slots = 2});
}

// Used by one rank. The mistakes need a replica: an engine cannot make them.
struct Bench {
  Communicator& comm;
  Engine& engine;
  Replica& replica;
};

// The deviation of the daemon's own update.
Result<double> RunCorrect(const Setting& setting, std::size_t index, const Bench& bench) {
  const Plan& plan = setting.cases[index].plan;
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(setting.data, plan, bench.comm.rank()));
  // With a learning rate of 0, which keeps the parameters of the reference.
  GACCD_RETURN_IF_ERROR(RunUpdate(bench.engine, *batches, PlainAccumulation(plan), {}));
  GACCD_RETURN_IF_ERROR(bench.engine.PopResult(/*wait=*/true).status());
  std::vector<float> gradients(setting.references[index].size());
  GACCD_RETURN_IF_ERROR(bench.engine.GetGradients(gradients));
  return Deviation(gradients, setting.references[index]);
}

// The deviation with a mistake: a wrong weight, or the gradient cleared at the wrong time.
Result<double> RunWithMistake(Mistake mistake, const Setting& setting, std::size_t index,
                              const Bench& bench) {
  const Plan& plan = setting.cases[index].plan;
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(setting.data, plan, bench.comm.rank()));
  const std::int64_t filled = plan.FilledSteps(bench.comm.rank());
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = batches->Next();
    const bool mean = mistake == Mistake::kMeanOfMeans;
    const double divisor =
        mean ? static_cast<double>(plan.world() * std::max<std::int64_t>(filled, 1) *
                                   std::max<std::int64_t>(batch->samples, 1))
             : static_cast<double>(plan.effective_batch());
    const bool first = mean ? step == 0 : step == 0 || step < filled;
    GACCD_RETURN_IF_ERROR(
        bench.replica.MicroStep(*batch, static_cast<float>(1.0 / divisor), first).status());
  }
  const auto gradients = View(bench.replica.gradients());
  GACCD_RETURN_IF_ERROR(bench.comm.AllReduceSum(gradients, gradients));
  return Deviation(bench.replica.gradients(), setting.references[index]);
}

// For a loss over tokens: the mean over the ranks of their own means.
Status RunRankMeans(const Setting& setting, std::size_t index, const Bench& bench,
                    SelftestCase* result) {
  const Plan& plan = setting.cases[index].plan;
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(setting.data, plan, bench.comm.rank()));
  double mine = 0;
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    GACCD_ASSIGN_OR_RETURN(const LossSums sums,
                           bench.replica.MicroStep(*batches->Next(), 1, /*first=*/step == 0));
    mine += sums.divisor;
  }
  double all = mine;
  const auto counted = View(std::span<double>(&all, 1));
  GACCD_RETURN_IF_ERROR(bench.comm.AllReduceSum(counted, counted));
  const double wrong = mine * static_cast<double>(plan.world());
  for (float& gradient : bench.replica.gradients()) {
    gradient = mine > 0 ? static_cast<float>(gradient / wrong) : 0;
  }
  if (mine > 0) result->rank_means_error = std::abs(all / wrong - 1);
  const auto gradients = View(bench.replica.gradients());
  GACCD_RETURN_IF_ERROR(bench.comm.AllReduceSum(gradients, gradients));
  result->rank_means = Deviation(bench.replica.gradients(), setting.references[index]);
  return Status::Ok();
}

std::set<std::int64_t> MicroBatches(const std::vector<SelftestCase>& cases, int rank) {
  std::set<std::int64_t> sizes;
  for (const SelftestCase& test : cases) sizes.merge(test.plan.MicroBatchSizes(rank));
  return sizes;
}

// Calls `run` for every case, with a new engine and replica.
template <typename Run>
Status WithBench(const Setting& setting, Communicator& comm, const Run& run) {
  const ReplicaOptions sizes{.micro_batches = MicroBatches(setting.cases, comm.rank())};
  GACCD_ASSIGN_OR_RETURN(auto engine,
                         MakeEngine(comm, setting.model,
                                    {.replica = sizes, .optimizer = {.lr = 1, .kind = SgdSpec{}}}));
  const auto elements = static_cast<std::size_t>(setting.model.layout().size());
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(elements * sizeof(float), "gradients"));
  GACCD_ASSIGN_OR_RETURN(
      auto replica,
      Replica::Create(setting.model, {reinterpret_cast<float*>(memory.data()), elements}, sizes));
  setting.model.Initialize(kSeed, replica->parameters());
  GACCD_RETURN_IF_ERROR(replica->ParametersChanged());
  GACCD_RETURN_IF_ERROR(engine->SetParameters(replica->parameters()));
  const Bench bench{comm, *engine, *replica};
  for (std::size_t i = 0; i < setting.cases.size(); ++i) {
    GACCD_RETURN_IF_ERROR(run(bench, i));
  }
  return Status::Ok();
}

Status RunRank(const Setting& setting, const Setting& tokens, Communicator& comm,
               std::vector<SelftestCase>* results) {
  GACCD_RETURN_IF_ERROR(WithBench(setting, comm, [&](const Bench& bench, std::size_t i) -> Status {
    SelftestCase& result = (*results)[i];
    GACCD_ASSIGN_OR_RETURN(result.right, RunCorrect(setting, i, bench));
    GACCD_ASSIGN_OR_RETURN(result.mean_of_means,
                           RunWithMistake(Mistake::kMeanOfMeans, setting, i, bench));
    GACCD_ASSIGN_OR_RETURN(result.last_only, RunWithMistake(Mistake::kLastOnly, setting, i, bench));
    return Status::Ok();
  }));
  return WithBench(tokens, comm, [&](const Bench& bench, std::size_t i) -> Status {
    SelftestCase& result = (*results)[i];
    GACCD_ASSIGN_OR_RETURN(result.tokens, RunCorrect(tokens, i, bench));
    return RunRankMeans(tokens, i, bench, &result);
  });
}

// The gradient of all samples of the update on one rank, from batches of `batch` samples, summed in
// double.
Result<std::vector<float>> Reference(const Dataset& data, const Model& model, const Plan& plan,
                                     std::int64_t batch) {
  const std::int64_t samples = plan.effective_batch();
  GACCD_ASSIGN_OR_RETURN(
      const Plan one,
      Plan::Make({.nodes = 1, .gpus_per_node = 1, .micro_batch = batch, .target_batch = samples}));
  std::vector<float> gradient(static_cast<std::size_t>(model.layout().size()));
  const ReplicaOptions sizes{.micro_batches = one.MicroBatchSizes(0)};
  GACCD_ASSIGN_OR_RETURN(auto replica, Replica::Create(model, gradient, sizes));
  model.Initialize(kSeed, replica->parameters());
  GACCD_RETURN_IF_ERROR(replica->ParametersChanged());
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(data, one, 0));
  std::vector<double> sum(gradient.size());
  double divisor = 0;
  for (std::int64_t step = 0; step < one.accum_steps(); ++step) {
    GACCD_ASSIGN_OR_RETURN(const LossSums sums,
                           replica->MicroStep(*batches->Next(), 1, /*first=*/true));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(gradient[i]);
    divisor += sums.divisor;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) gradient[i] = static_cast<float>(sum[i] / divisor);
  return gradient;
}

Result<std::vector<std::vector<float>>> References(const Dataset& data, const Model& model,
                                                   const std::vector<SelftestCase>& cases,
                                                   std::int64_t batch) {
  std::vector<std::vector<float>> references;
  for (const SelftestCase& test : cases) {
    GACCD_ASSIGN_OR_RETURN(
        std::vector<float> reference,
        Reference(data, model, test.plan, std::min(batch, test.plan.effective_batch())));
    references.push_back(std::move(reference));
  }
  return references;
}

}  // namespace

double SelftestCase::tolerance() const {
  return std::max(1e-6,
                  0x1p-24 * std::sqrt(static_cast<double>(plan.world() * plan.accum_steps())));
}

double SelftestCase::mean_of_means_error() const {
  double error = 0;
  for (int rank = 0; rank < plan.world(); ++rank) {
    const std::int64_t filled = plan.FilledSteps(rank);
    for (const std::int64_t size : plan.MicroBatchSizes(rank)) {
      const double wrong = static_cast<double>(plan.world()) * static_cast<double>(filled) *
                           static_cast<double>(size);
      error = std::max(error, std::abs(static_cast<double>(plan.effective_batch()) / wrong - 1));
    }
  }
  return error;
}

bool SelftestCase::mean_of_means_shows() const {
  return mean_of_means_error() > kMargin * tolerance();
}

bool SelftestCase::rank_means_show() const { return rank_means_error > kMargin * tolerance(); }

bool SelftestCase::several_steps() const {
  return plan.accum_steps() > 1 && plan.ranks_hi_samples() > 1;
}

bool SelftestCase::passed() const {
  return right <= tolerance() && (!mean_of_means_shows() || mean_of_means > tolerance()) &&
         (!several_steps() || last_only > tolerance()) && tokens <= tolerance() &&
         (!rank_means_show() || rank_means > tolerance());
}

void SelftestCase::KeepLarger(const SelftestCase& other) {
  for (double SelftestCase::*const member :
       {&SelftestCase::right, &SelftestCase::mean_of_means, &SelftestCase::last_only,
        &SelftestCase::tokens, &SelftestCase::rank_means, &SelftestCase::rank_means_error}) {
    this->*member = std::max(this->*member, other.*member);
  }
}

Result<std::vector<SelftestCase>> RunSelftestCases(const PlanRequest& request) {
  std::vector<SelftestCase> cases;
  std::int64_t samples = 0;
  for (const Rounding rounding :
       {Rounding::kExact, Rounding::kFloor, Rounding::kCeil, Rounding::kNearest}) {
    PlanRequest rounded = request;
    rounded.rounding = rounding;
    GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(rounded));
    samples = std::max(samples, plan.effective_batch());
    cases.push_back({.plan = plan});
  }
  GACCD_RETURN_IF_ERROR(CheckSelftestLimits({.ranks = cases[0].plan.world(),
                                             .micro_batch = std::min(request.micro_batch, samples),
                                             .samples = samples},
                                            ReadSelftestLimits()));
  GACCD_ASSIGN_OR_RETURN(const auto data, OpenDataset(SyntheticSpec{.samples = samples,
                                                                    .features = kFeatures,
                                                                    .outputs = kOutputs,
                                                                    .seed = kSeed},
                                                      {}));
  GACCD_ASSIGN_OR_RETURN(const Model model, Model::Make(SelftestModel(), data->spec()));
  GACCD_ASSIGN_OR_RETURN(const auto references, References(*data, model, cases, samples));
  const Setting setting{*data, model, cases, references};
  const RaggedTokens token_data(samples);
  GACCD_ASSIGN_OR_RETURN(const Model token_model, Model::Make(TokenModel(), token_data.spec()));
  GACCD_ASSIGN_OR_RETURN(const auto token_references,
                         References(token_data, token_model, cases, kTokenBatch));
  const Setting tokens{token_data, token_model, cases, token_references};
  std::vector<SelftestCase> worst = cases;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) -> Status {
    std::vector<SelftestCase> mine = cases;
    GACCD_RETURN_IF_ERROR(RunRank(setting, tokens, comm, &mine));
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < mine.size(); ++i) worst[i].KeepLarger(mine[i]);
    return Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(RunThreadRanks(
      static_cast<int>(cases[0].plan.world()),
      {.comm = {}, .ranks_per_node = static_cast<int>(request.gpus_per_node)}, body));
  return worst;
}

}  // namespace gaccd
