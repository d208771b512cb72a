#include "daemon/selftest/selftest_job.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/flat_json.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/selftest/exchange_mistakes.h"
#include "daemon/selftest/selftest_limits.h"
#include "daemon/selftest/update_mistakes.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/pipeline.h"
#include "daemon/train/training_checks.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

// Shared by all ranks; read-only.
struct JobSetting {
  const Job& job;
  const Dataset& data;
  const Model& model;
  std::vector<float> parameters;
  // With Bits::kAnySplit: the update on one rank with these bits, and without.
  UpdateOutcome any_split = {};
  UpdateOutcome this_split = {};

  [[nodiscard]] SampleOrder order() const { return {job.seed, data.size(), job.data.shuffle}; }
  [[nodiscard]] Result<UpdateSchedule> MakeUpdateSchedule(const Plan& plan) const {
    return UpdateSchedule::Make(
        {.dataset_size = data.size(), .batch = plan.effective_batch(), .max_updates = 1});
  }
};

using Gradient = std::vector<float>;

Result<UpdateOutcome> ReadOutcome(Engine& engine, const Model& model) {
  GACCD_RETURN_IF_ERROR(engine.PopResult(/*wait=*/true).status());
  UpdateOutcome outcome{.gradient = Gradient(static_cast<std::size_t>(model.layout().size()))};
  GACCD_RETURN_IF_ERROR(engine.GetGradients(outcome.gradient));
  if (model.update_sums() == 0) return outcome;
  Gradient parameters(outcome.gradient.size());
  GACCD_RETURN_IF_ERROR(engine.GetParameters(parameters));
  outcome.running = RunningValues(model, parameters);
  return outcome;
}

// Runs one update, with learning rate 0.
using UpdateFunction = std::function<Status(Engine& engine, BatchFeed& feed, const Plan& plan)>;

// model: that of the setting, or a stage of it.
Result<UpdateOutcome> ComputeOutcome(const JobSetting& setting, const Model& model,
                                     Communicator& comm, const Plan& plan,
                                     const UpdateFunction& update) {
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule, setting.MakeUpdateSchedule(plan));
  GACCD_ASSIGN_OR_RETURN(BatchFeed feed,
                         BatchFeed::Make(setting.data, setting.order(), schedule, plan, comm.rank(),
                                         SelectProgramGenerator(setting.job, model)));
  feed.GroupByLength(model.sample().cuts);
  const ReplicaOptions sizes{.micro_batches = feed.BatchSizes(),
                             .micro_steps_per_update = plan.accum_steps(),
                             .effective_batch = plan.effective_batch(),
                             .in_flight = MaxInFlight(setting.job, model, plan.accum_steps()),
                             .recompute = plan.request().recompute,
                             .any_split = plan.any_split()};
  GACCD_ASSIGN_OR_RETURN(auto engine, MakeEngine(comm, model,
                                                 {.replica = sizes,
                                                  .optimizer = setting.job.optimizer,
                                                  .shard = setting.job.shard}));
  GACCD_RETURN_IF_ERROR(engine->SetParameters(setting.parameters));
  GACCD_RETURN_IF_ERROR(feed.Start(*engine, 0));
  GACCD_RETURN_IF_ERROR(update(*engine, feed, plan));
  return ReadOutcome(*engine, model);
}

Status CorrectUpdate(Engine& engine, BatchFeed& feed, const Plan& plan) {
  return RunUpdate(engine, feed.batches(),
                   feed.ProgramFor({.index = 0, .samples = plan.effective_batch()}), {});
}

// A plain update in which every micro-step with samples is marked as the first one.
Status LastOnlyUpdate(Engine& engine, BatchFeed& feed, const Plan& plan) {
  GACCD_RETURN_IF_ERROR(engine.Begin({.samples = plan.effective_batch()}));
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    const BatchView* batch = feed.batches().Next();
    GACCD_RETURN_IF_ERROR(engine.MicroStep(*batch, {.first = step == 0 || batch->samples > 0,
                                                    .last = step + 1 == plan.accum_steps()}));
  }
  GACCD_RETURN_IF_ERROR(engine.Reduce());
  GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
  GACCD_RETURN_IF_ERROR(engine.Audit());
  GACCD_RETURN_IF_ERROR(engine.Optimize());
  return engine.End();
}

// Infinity instead of NaN, which std::max() would ignore.
double Deviation(const Gradient& actual, const Gradient& reference) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    difference += std::pow(double{actual[i]} - double{reference[i]}, 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  const double deviation = std::sqrt(difference / norm);
  return std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation;
}

double Deviation(const UpdateOutcome& actual, const UpdateOutcome& reference) {
  const double of_gradient = Deviation(actual.gradient, reference.gradient);
  return actual.running.empty()
             ? of_gradient
             : std::max(of_gradient, Deviation(actual.running, reference.running));
}

// A relative deviation from 0 is meaningless.
Status CheckGradient(const Gradient& gradient, std::int64_t samples) {
  if (std::ranges::any_of(gradient, [](float value) { return value != 0; })) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the selftest has nothing to compare: expected a gradient other than 0 in the "
                 "first update, found 0 in all ",
                 gradient.size(), " values of its ", Counted(samples, "sample"))};
}

Result<UpdateOutcome> UpdateOnOneRank(const JobSetting& setting, std::int64_t samples,
                                      std::int64_t micro_batch, Bits bits = Bits::kThisSplit) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make({.nodes = 1,
                                                      .gpus_per_node = 1,
                                                      .micro_batch = micro_batch,
                                                      .target_batch = samples,
                                                      .bits = bits}));
  const auto alone = MakeSingle();
  return ComputeOutcome(setting, setting.model, *alone, plan, CorrectUpdate);
}

// What all others are compared with.
Result<UpdateOutcome> BigBatch(const JobSetting& setting, std::int64_t samples) {
  Result<UpdateOutcome> outcome = UpdateOnOneRank(setting, samples, samples);
  if (outcome.ok()) return outcome;
  // The advice about its memory is to set a smaller micro-batch, which changes nothing here.
  return Status(outcome.status().kind(),
                StrCat("the one big batch to compare with, ", samples,
                       " samples on one rank (fewer with a smaller --target-batch): ",
                       outcome.status().message()));
}

std::int64_t CountOtherBits(const Gradient& a, const Gradient& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) ? 1 : 0;
  }
  return count;
}

std::int64_t CountOtherBits(const UpdateOutcome& a, const UpdateOutcome& b) {
  return CountOtherBits(a.gradient, b.gradient) + CountOtherBits(a.running, b.running);
}

// Collective. right: the outcome of this rank.
Status CountOtherBits(const JobSetting& setting, Communicator& comm, const UpdateOutcome& right,
                      JobSelftest* test) {
  PlanRequest request = test->plan.request();
  request.bits = Bits::kThisSplit;
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  GACCD_ASSIGN_OR_RETURN(const UpdateOutcome of_this_split,
                         ComputeOutcome(setting, setting.model, comm, plan, CorrectUpdate));
  test->other_bits = CountOtherBits(right, setting.any_split);
  test->other_bits_of_this_split = CountOtherBits(of_this_split, setting.this_split);
  return Status::Ok();
}

// The micro-batches of the update, read `passes` times.
Result<std::unique_ptr<Prefetcher>> StartBatches(const JobSetting& setting, const Plan& plan,
                                                 int rank, int passes) {
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule, setting.MakeUpdateSchedule(plan));
  GACCD_ASSIGN_OR_RETURN(TrainIndices indices,
                         TrainIndices::Make(setting.order(), schedule, plan, rank, 0, passes));
  return Prefetcher::Start(setting.data, std::make_unique<TrainIndices>(std::move(indices)));
}

Result<UpdateOutcome> MakeMistake(const JobSetting& setting, Communicator& comm, const Plan& plan,
                                  ContrastiveMistake mistake) {
  GACCD_ASSIGN_OR_RETURN(auto batches,
                         StartBatches(setting, plan, comm.rank(), TwoPassContrastive(plan).passes));
  GACCD_ASSIGN_OR_RETURN(
      Gradient gradient,
      ContrastiveGradient(comm, setting.model, setting.parameters, plan, *batches, mistake));
  return UpdateOutcome{.gradient = std::move(gradient)};
}

Result<UpdateOutcome> MakeMistake(const JobSetting& setting, Communicator& comm, const Plan& plan,
                                  StatisticsMistake mistake) {
  GACCD_ASSIGN_OR_RETURN(auto batches, StartBatches(setting, plan, comm.rank(), 1));
  return StatisticsUpdate(comm, setting.model, setting.parameters, plan, *batches, mistake);
}

// Runs the right update, then the mistakes, on one rank; stores their deviations in *test.
Status RunRank(const JobSetting& setting, const UpdateOutcome& reference, Communicator& comm,
               JobSelftest* test) {
  Model model = setting.model;
  GACCD_RETURN_IF_ERROR(MakeStage(setting.job, comm.rank(), &model));
  GACCD_ASSIGN_OR_RETURN(const UpdateOutcome right,
                         ComputeOutcome(setting, model, comm, test->plan, CorrectUpdate));
  test->right = Deviation(right, reference);
  if (test->plan.any_split()) {
    GACCD_RETURN_IF_ERROR(CountOtherBits(setting, comm, right, test));
  }
  std::size_t i = 0;
  const auto add = [&](const Result<UpdateOutcome>& wrong) -> Status {
    GACCD_RETURN_IF_ERROR(wrong.status());
    test->mistakes[i++].deviation = Deviation(*wrong, reference);
    return Status::Ok();
  };
  const auto make = [&](const auto& mistakes) -> Status {
    for (const auto mistake : mistakes) {
      GACCD_RETURN_IF_ERROR(add(MakeMistake(setting, comm, test->plan, mistake)));
    }
    return Status::Ok();
  };
  if (model.contrastive()) {
    GACCD_RETURN_IF_ERROR(make(kContrastiveMistakes));
  } else if (model.update_sums() > 0) {
    GACCD_RETURN_IF_ERROR(make(kStatisticsMistakes));
  } else if (!model.stage() && !test->plan.any_split()) {
    GACCD_RETURN_IF_ERROR(add(ComputeOutcome(setting, model, comm, test->plan, LastOnlyUpdate)));
  }
  for (const ExchangeMistake mistake : ListExchangeMistakes(setting.job)) {
    const auto mistaken = MakeFaultyCommunicator(comm, mistake);
    GACCD_RETURN_IF_ERROR(
        add(ComputeOutcome(setting, model, *mistaken, test->plan, CorrectUpdate)));
  }
  return Status::Ok();
}

// Whether a group of a batch norm extends over several ranks, or micro-batches: otherwise
// statistics of each one alone are right.
bool SharesGroups(const Model& model, const Plan& plan, bool micro_batches) {
  const auto cuts_a_group = [&](std::int64_t position) {
    return std::ranges::any_of(model.running_statistics(), [&](const nn::RunningUpdate& running) {
      return position > 0 && position < plan.effective_batch() &&
             (running.run_size == 0 || position % running.run_size != 0);
    });
  };
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    std::int64_t position = plan.Offset(rank);
    for (std::int64_t step = 0; step < (micro_batches ? plan.accum_steps() : 1); ++step) {
      if (cuts_a_group(position)) return true;
      position += plan.MicroBatch(rank, step);
    }
  }
  return false;
}

bool HasEffectOnGroups(StatisticsMistake mistake, const Plan& plan, const Model& model) {
  const bool of_groups = mistake == StatisticsMistake::kOwnRank ||
                         mistake == StatisticsMistake::kOwnMicroBatch ||
                         mistake == StatisticsMistake::kOwnGradient;
  return HasEffect(mistake, plan, model) &&
         (!of_groups || SharesGroups(model, plan, mistake == StatisticsMistake::kOwnMicroBatch));
}

// model: of stage 0.
std::vector<JobSelftest::Mistake> ListMistakes(const Job& job, const Model& model,
                                               const Plan& plan) {
  std::vector<JobSelftest::Mistake> mistakes;
  const auto add = [&](auto mistake) {
    bool has_effect = false;
    if constexpr (std::is_same_v<decltype(mistake), StatisticsMistake>) {
      has_effect = HasEffectOnGroups(mistake, plan, model);
    } else if constexpr (std::is_same_v<decltype(mistake), ExchangeMistake>) {
      has_effect = HasEffect(mistake, job, plan, model);
    } else {
      has_effect = HasEffect(mistake, plan);
    }
    mistakes.push_back({.name = std::string(Name(mistake)), .has_effect = has_effect});
  };
  if (model.contrastive()) {
    std::ranges::for_each(kContrastiveMistakes, add);
  } else if (model.update_sums() > 0) {
    std::ranges::for_each(kStatisticsMistakes, add);
  } else if (!model.stage() && !plan.any_split()) {  // whose micro-steps are all the first
    add(ContrastiveMistake::kLastOnly);
  }
  std::ranges::for_each(ListExchangeMistakes(job), add);
  return mistakes;
}

}  // namespace

double JobSelftest::tolerance() const {
  constexpr double kMaxRounding = 1e-3;
  return std::max({1e-6,
                   0x1p-24 * std::sqrt(static_cast<double>(plan.world() * plan.accum_steps())),
                   std::min(4 * rounding, kMaxRounding)});
}

bool JobSelftest::passed() const {
  return right <= tolerance() && other_bits == 0 &&
         std::ranges::all_of(mistakes, [&](const Mistake& mistake) {
           return !mistake.has_effect || mistake.deviation > tolerance();
         });
}

Result<JobSelftest> RunJobSelftest(const Job& job, const PlanRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  GACCD_RETURN_IF_ERROR(CheckSelftestLimits({.ranks = plan.world(),
                                             .micro_batch = plan.MicroBatch(0, 0),
                                             .samples = plan.effective_batch()},
                                            ReadSelftestLimits()));
  GACCD_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(job));
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, MakeBatchSpec(job, *data.train)));
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  GACCD_RETURN_IF_ERROR(CheckAnySplit(job, model, plan));
  if (model.micro_values() > 0) {
    return Status(
        ErrorKind::kConfig,
        "batch_norm: with statistics of each micro-batch (MICRO) an update is not that of "
        "one big batch, which the selftest compares with");
  }
  JobSetting setting{job, *data.train, model,
                     std::vector<float>(static_cast<std::size_t>(model.layout().size()))};
  model.Initialize(job.seed, setting.parameters);
  const std::int64_t samples = plan.effective_batch();
  GACCD_ASSIGN_OR_RETURN(const UpdateOutcome reference, BigBatch(setting, samples));
  GACCD_RETURN_IF_ERROR(CheckGradient(reference.gradient, samples));
  GACCD_ASSIGN_OR_RETURN(const UpdateOutcome in_two,
                         UpdateOnOneRank(setting, samples, (samples + 1) / 2));
  if (plan.any_split()) {
    const std::int64_t micro = request.micro_batch;
    GACCD_ASSIGN_OR_RETURN(setting.any_split,
                           UpdateOnOneRank(setting, samples, micro, Bits::kAnySplit));
    GACCD_ASSIGN_OR_RETURN(setting.this_split, UpdateOnOneRank(setting, samples, micro));
  }
  Model first_stage = model;
  GACCD_RETURN_IF_ERROR(MakeStage(job, 0, &first_stage));
  JobSelftest worst{.plan = plan,
                    .model = model.Describe(),
                    .has_statistics = model.update_sums() > 0,
                    .rounding = Deviation(in_two, reference),
                    .mistakes = ListMistakes(job, first_stage, plan)};
  std::mutex mutex;
  const auto body = [&](Communicator& comm) -> Status {
    JobSelftest mine = worst;
    GACCD_RETURN_IF_ERROR(RunRank(setting, reference, comm, &mine));
    const std::lock_guard lock(mutex);
    worst.right = std::max(worst.right, mine.right);
    worst.other_bits = std::max(worst.other_bits, mine.other_bits);
    worst.other_bits_of_this_split =
        std::max(worst.other_bits_of_this_split, mine.other_bits_of_this_split);
    for (std::size_t i = 0; i < mine.mistakes.size(); ++i) {
      double& deviation = worst.mistakes[i].deviation;
      deviation = std::max(deviation, mine.mistakes[i].deviation);
    }
    return Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(RunThreadRanks(
      static_cast<int>(plan.world()),
      {.comm = {}, .ranks_per_node = static_cast<int>(request.gpus_per_node)}, body));
  return worst;
}

std::string JobSelftestJson(const JobSelftest& test) {
  std::string text;
  for (const JobSelftest::Mistake& mistake : test.mistakes) {
    JsonObject json;
    json("mistake", mistake.name);
    json("deviation", mistake.has_effect ? mistake.deviation : std::nan(""));
    text += json.FinishLine();
  }
  JsonObject json;
  json("effective_batch", test.plan.effective_batch());
  json("accum_steps", test.plan.accum_steps());
  json("ranks", test.plan.world());
  json("deviation", test.right);
  json("rounding", test.rounding);
  if (test.plan.any_split()) {
    json("other_bits", test.other_bits);
    json("other_bits_of_this_split", test.other_bits_of_this_split);
  }
  json("passed", test.passed());
  return text + json.FinishLine();
}

std::string JobSelftestText(const JobSelftest& test) {
  const Plan& plan = test.plan;
  const std::string pipelines =
      plan.stages() > 1 ? StrCat(" = ", plan.pipelines(), " pipelines x ", plan.stages(), " stages")
                        : "";
  std::string text =
      StrCat("selftest of the job: ", test.model, "\n", plan.world(), " ranks", pipelines,
             " as threads on the CPU in f32, ", plan.accum_steps(), " micro-steps, ",
             plan.effective_batch(), " samples\n", "gradient",
             test.has_statistics ? " and running statistics" : "",
             " of the first update against one big batch on one rank: |g - g_ref| / |g_ref|\n\n");
  const auto add = [&](const std::string& name, double deviation, const char* verdict) {
    text += Format("  %-24s %.1e %s\n", name.c_str(), deviation, verdict);
  };
  add("rounding", test.rounding, "one rank, two micro-batches");
  add("gaccd", test.right, test.right <= test.tolerance() ? "ok" : "BAD");
  if (plan.any_split()) {
    text += StrCat("  values with other bits than on one rank: ", test.other_bits,
                   test.other_bits == 0 ? " ok" : " BAD",
                   "; without --bits=any-split: ", test.other_bits_of_this_split, "\n");
  }
  for (const JobSelftest::Mistake& mistake : test.mistakes) {
    add(mistake.name, mistake.deviation,
        !mistake.has_effect                     ? "no effect"
        : mistake.deviation <= test.tolerance() ? "MISSED"
                                                : "caught");
  }
  return text + (test.passed() ? "\nselftest passed\n" : "\nselftest FAILED\n");
}

}  // namespace gaccd
