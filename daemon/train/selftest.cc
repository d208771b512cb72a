#include "daemon/train/selftest.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/flat_json.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/device/host_buffer.h"
#include "daemon/engine/engine.h"
#include "daemon/model/model.h"
#include "daemon/model/replica.h"
#include "daemon/train/selftest_room.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

constexpr std::int64_t kFeatures = 32;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kOutputs = 8;
constexpr std::uint64_t kSeed = 7;

enum class Mistake : std::uint8_t { kMeanOfMeans, kLastOnly };

ModelSpec SelftestModel() {
  return {.layers = {{"fc1", LinearSpec{kFeatures, kHidden, true}},
                     {"relu", ReluSpec{}},
                     {"fc2", LinearSpec{kHidden, kOutputs, true}}},
          .loss = LossKind::kMeanSquaredError};
}

// Sequences of which every sample has another number of labels, at least one.
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

// Every token adds to a row of the table: f32 would round the sum over a large batch.
constexpr std::int64_t kTokenBatch = 16;

ModelSpec TokenModel() {
  constexpr std::int64_t kWidth = 12;
  return {.layers = {{"table", EmbeddingSpec{RaggedTokens::kVocabulary, kWidth}},
                     {"head", LinearSpec{kWidth, RaggedTokens::kClasses, true}}},
          .loss = LossKind::kSoftmaxCrossEntropy};
}

// What all ranks share; read only.
struct Setting {
  const Dataset& data;
  const Model& model;
  const std::vector<SelftestCase>& cases;
  const std::vector<std::vector<float>>& references;  // by case
};

// NaN as infinity: std::max() would lose it.
double Deviation(std::span<const float> found, std::span<const float> reference) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double d = static_cast<double>(found[i]) - reference[i];
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

// How many micro-steps of this rank have samples.
std::int64_t FilledSteps(const Plan& plan, int rank) {
  return std::min(plan.accum_steps(), plan.Load(rank));
}

// What one rank works with. The mistakes cannot be made with an engine, so they have a replica.
struct Bench {
  Communicator& comm;
  Engine& engine;
  Replica& replica;
};

// The gradient of the daemon's own update.
Result<double> RunRight(const Setting& setting, std::size_t index, const Bench& bench) {
  const Plan& plan = setting.cases[index].plan;
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(setting.data, plan, bench.comm.rank()));
  // A learning rate of 0: the parameters stay those of the reference.
  GACCD_RETURN_IF_ERROR(RunUpdate(bench.engine, *batches, PlainAccumulation(plan), {}));
  GACCD_RETURN_IF_ERROR(bench.engine.TakeResult(/*wait=*/true).status());
  std::vector<float> gradients(setting.references[index].size());
  GACCD_RETURN_IF_ERROR(bench.engine.GetGradients(gradients));
  return Deviation(gradients, setting.references[index]);
}

// The two mistakes, as they are made: only in the weight, or only in when the gradient is cleared.
Result<double> RunWrong(Mistake mistake, const Setting& setting, std::size_t index,
                        const Bench& bench) {
  const Plan& plan = setting.cases[index].plan;
  GACCD_ASSIGN_OR_RETURN(auto batches, OneUpdate(setting.data, plan, bench.comm.rank()));
  const std::int64_t filled = FilledSteps(plan, bench.comm.rank());
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

struct RankResult {
  double right = 0;
  double mean_of_means = 0;
  double last_only = 0;
  double tokens = 0;
  double rank_means = 0;
  double rank_means_error = 0;
};

// Of a loss over tokens: every rank takes the mean over its own, then all the mean of these.
Status RunRankMeans(const Setting& setting, std::size_t index, const Bench& bench,
                    RankResult* result) {
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
  for (const SelftestCase& test : cases) {
    sizes.insert(test.plan.MicroBatch(rank, 0));
    sizes.insert(test.plan.MicroBatch(rank, test.plan.accum_steps() - 1));
  }
  sizes.erase(0);
  return sizes;
}

// Does `run` with a fresh engine and replica.
template <typename Run>
Status WithBench(const Setting& setting, Communicator& comm, const Run& run) {
  const ReplicaOptions sizes{.micro_batches = MicroBatches(setting.cases, comm.rank())};
  GACCD_ASSIGN_OR_RETURN(
      auto engine, MakeCpuEngine(comm, setting.model,
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
               std::vector<RankResult>* results) {
  GACCD_RETURN_IF_ERROR(WithBench(setting, comm, [&](const Bench& bench, std::size_t i) -> Status {
    RankResult& result = (*results)[i];
    GACCD_ASSIGN_OR_RETURN(result.right, RunRight(setting, i, bench));
    GACCD_ASSIGN_OR_RETURN(result.mean_of_means,
                           RunWrong(Mistake::kMeanOfMeans, setting, i, bench));
    GACCD_ASSIGN_OR_RETURN(result.last_only, RunWrong(Mistake::kLastOnly, setting, i, bench));
    return Status::Ok();
  }));
  return WithBench(tokens, comm, [&](const Bench& bench, std::size_t i) -> Status {
    RankResult& result = (*results)[i];
    GACCD_ASSIGN_OR_RETURN(result.tokens, RunRight(tokens, i, bench));
    return RunRankMeans(tokens, i, bench, &result);
  });
}

// The gradient of all samples of the update on one rank, `batch` of them at once, added up in
// double.
Result<std::vector<float>> Reference(const Dataset& data, const Model& model, const Plan& plan,
                                     std::int64_t batch) {
  const std::int64_t samples = plan.effective_batch();
  GACCD_ASSIGN_OR_RETURN(
      const Plan one,
      Plan::Make({.nodes = 1, .gpus_per_node = 1, .micro_batch = batch, .target_batch = samples}));
  std::vector<float> gradient(static_cast<std::size_t>(model.layout().size()));
  const ReplicaOptions sizes{
      .micro_batches = {one.MicroBatch(0, 0), one.MicroBatch(0, one.accum_steps() - 1)}};
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

// What is said of a mistake: it has an effect, which must show or may be lost in rounding.
std::string Cell(double deviation, double tolerance, bool has_effect, bool shows) {
  char text[32];
  if (!has_effect) return "no effect";
  const char* found = deviation > tolerance ? "caught" : shows ? "MISSED" : "small";
  std::snprintf(text, sizeof text, "%.1e %s", deviation, found);
  return text;
}

}  // namespace

double SelftestCase::tolerance() const {
  return std::max(1e-6, 0x1p-24 * std::sqrt(static_cast<double>(plan.accum_steps())));
}

double SelftestCase::mean_of_means_error() const {
  double error = 0;
  for (int rank = 0; rank < plan.world(); ++rank) {
    const std::int64_t filled = FilledSteps(plan, rank);
    if (filled == 0) continue;
    for (const std::int64_t step : {std::int64_t{0}, filled - 1}) {  // the largest, the smallest
      const double wrong = static_cast<double>(plan.world()) * static_cast<double>(filled) *
                           static_cast<double>(plan.MicroBatch(rank, step));
      error = std::max(error, std::abs(static_cast<double>(plan.effective_batch()) / wrong - 1));
    }
  }
  return error;
}

namespace {
constexpr double kMargin = 1000;  // samples that weigh too much are averaged as all others
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
  GACCD_RETURN_IF_ERROR(CheckSelftestRoom({.ranks = cases[0].plan.world(),
                                           .micro_batch = std::min(request.micro_batch, samples),
                                           .samples = samples},
                                          FindSelftestRoom()));
  GACCD_ASSIGN_OR_RETURN(const auto data, OpenDataset(SyntheticSource{.samples = samples,
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
  std::vector<RankResult> worst(cases.size());
  std::mutex mutex;
  const auto body = [&](Communicator& comm) -> Status {
    std::vector<RankResult> mine(cases.size());
    GACCD_RETURN_IF_ERROR(RunRank(setting, tokens, comm, &mine));
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      worst[i].right = std::max(worst[i].right, mine[i].right);
      worst[i].mean_of_means = std::max(worst[i].mean_of_means, mine[i].mean_of_means);
      worst[i].last_only = std::max(worst[i].last_only, mine[i].last_only);
      worst[i].tokens = std::max(worst[i].tokens, mine[i].tokens);
      worst[i].rank_means = std::max(worst[i].rank_means, mine[i].rank_means);
      worst[i].rank_means_error = std::max(worst[i].rank_means_error, mine[i].rank_means_error);
    }
    return Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(RunThreadRanks(
      static_cast<int>(cases[0].plan.world()),
      {.comm = {}, .ranks_per_node = static_cast<int>(request.gpus_per_node)}, body));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].right = worst[i].right;
    cases[i].mean_of_means = worst[i].mean_of_means;
    cases[i].last_only = worst[i].last_only;
    cases[i].tokens = worst[i].tokens;
    cases[i].rank_means = worst[i].rank_means;
    cases[i].rank_means_error = worst[i].rank_means_error;
  }
  return cases;
}

std::string SelftestJson(const std::vector<SelftestCase>& cases) {
  const auto deviation = [](double value, bool shows) {
    return shows ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  std::string text;
  for (const SelftestCase& test : cases) {
    const PlanRequest& request = test.plan.request();
    text +=
        JsonLine({{"mode", Name(request.rounding)},
                  {"nodes", request.nodes},
                  {"gpus_per_node", request.gpus_per_node},
                  {"micro_batch", request.micro_batch},
                  {"target_batch", request.target_batch},
                  {"eff_batch", test.plan.effective_batch()},
                  {"accum_steps", test.plan.accum_steps()},
                  {"deviation", test.right},
                  {"mean_of_means", deviation(test.mean_of_means, test.mean_of_means_error() > 0)},
                  {"last_micro_batch_only", deviation(test.last_only, test.several_steps())},
                  {"tokens_deviation", test.tokens},
                  {"mean_of_rank_means", deviation(test.rank_means, test.rank_means_error > 0)},
                  {"passed", test.passed()}});
  }
  return text;
}

std::string SelftestText(const PlanRequest& request, const std::vector<SelftestCase>& cases) {
  std::string text =
      StrCat("selftest: ", request.nodes, " nodes x ", request.gpus_per_node, " = ",
             request.nodes * request.gpus_per_node, " ranks as threads, micro-batch ",
             request.micro_batch, ", target batch ", request.target_batch, "\n",
             "gradient against one big batch on one rank: |g - g_ref| / |g_ref|\n\n",
             "  mode     steps  samples  gaccd       mean of means   last micro-batch only"
             "   tokens      mean of rank means\n");
  bool passed = true;
  double tolerance = 0;
  for (const SelftestCase& test : cases) {
    char line[200];
    std::snprintf(
        line, sizeof line, "  %-8s %5lld %8lld  %.1e %-3s %-15s %-23s %.1e %-3s %s\n",
        std::string(Name(test.plan.request().rounding)).c_str(),
        static_cast<long long>(test.plan.accum_steps()),
        static_cast<long long>(test.plan.effective_batch()), test.right,
        test.right <= test.tolerance() ? "ok" : "BAD",
        Cell(test.mean_of_means, test.tolerance(), test.mean_of_means_error() > 0,
             test.mean_of_means_shows())
            .c_str(),
        Cell(test.last_only, test.tolerance(), test.several_steps(), true).c_str(), test.tokens,
        test.tokens <= test.tolerance() ? "ok" : "BAD",
        Cell(test.rank_means, test.tolerance(), test.rank_means_error > 0, test.rank_means_show())
            .c_str());
    text += line;
    passed = passed && test.passed();
    tolerance = std::max(tolerance, test.tolerance());
  }
  if (!passed) return text + "\nselftest FAILED\n";
  char verdict[80];
  std::snprintf(verdict, sizeof verdict,
                "\nselftest passed: every mode is right to %.2g, every mistake is caught\n",
                tolerance);
  return text + verdict;
}

}  // namespace gaccd
