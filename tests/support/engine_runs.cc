#include "tests/support/engine_runs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "daemon/data/index_source.h"
#include "daemon/data/masked_tokens.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/multiply.h"
#include "daemon/ops/product/linear.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/random.h"
#include "daemon/train/update.h"

namespace gaccd::tests {
namespace {

constexpr std::uint64_t kSeed = 3;

SampleSpec MakeTextSpec(const EngineCase& test) {
  SampleSpec spec{.tensors = {{"tokens", DType::kI32, {test.texts}},
                              {"segments", DType::kI32, {test.texts}},
                              {"lengths", DType::kI32, {}}},
                  .vocabulary = kTokenVocabulary};
  if (!test.masked) {
    spec.tensors.push_back({"labels", DType::kI32, {}});
    spec.classes = test.widths.back();
  }
  for (std::int64_t cut = test.cut; cut > 0 && cut < test.texts; cut += test.cut) {
    spec.cuts.push_back(cut);
  }
  return spec;
}

SampleSpec MakeCaseSpec(const EngineCase& test) {
  if (test.texts > 0) return MakeTextSpec(test);
  if (test.tokens > 0) {
    SampleSpec spec{
        .tensors = {{"tokens", DType::kI32, {test.tokens}}, {"labels", DType::kI32, {test.tokens}}},
        .classes = test.widths.back(),
        .vocabulary = kTokenVocabulary};
    if (test.token_weights) spec.tensors.push_back({"weights", DType::kF32, {test.tokens}});
    return spec;
  }
  SampleSpec spec = test.loss == LossKind::kSoftmaxCrossEntropy
                        ? LabelledSample({test.widths.front()}, test.widths.back())
                        : TargetSample({test.widths.front()}, test.widths.back());
  if (test.other_tensors) {
    std::ranges::reverse(spec.tensors);
    spec.tensors.insert(spec.tensors.begin() + 1, {"unused", DType::kI64, {3}});
  }
  return spec;
}

// The layers of MakeCaseModel() with weights that are as they were after all collective functions,
// and so are their gradients: each rank has its own part of them, and the parts are summed at the
// end.
class CollectiveNetwork final : public Network {
 public:
  CollectiveNetwork(const EngineCase& test, int rank) : test_(test), rank_(rank) {
    for (std::size_t i = 1; i < test.widths.size(); ++i) {
      const Shape shape = {test.widths[i], test.widths[i - 1]};
      const auto uniform = nn::Uniform(1 / std::sqrt(static_cast<double>(shape[1])));
      parameters_.Declare({StrCat("fc", i, ".weight"), shape, uniform});
      parameters_.Declare({StrCat("fc", i, ".bias"), {shape[0]}, uniform});
    }
  }

  ValueId Record(nn::Recorder& recorder) const override {
    ValueId x = recorder.Input("features");
    if (test_.target == test_.micro * test_.ranks && test_.tail == 0) {
      // All ranks have as many rows: a collective function reads the batch itself.
      const RowsByRank rows = EqualRows(recorder.samples());
      x = recorder.Apply("gather", std::make_shared<AllGather>(rows), {x});
      x = recorder.Apply("own", std::make_shared<OwnRows>(rows), {x});
    }
    for (std::size_t i = 1; i < test_.widths.size(); ++i) {
      if (i > 1) x = recorder.Apply("relu", std::make_shared<Relu>(), {x});
      const ValueId weight = Travel(recorder, recorder.Parameter(2 * i - 2), test_.widths[i]);
      x = recorder.Apply("fc", std::make_shared<Linear>(),
                         {x, weight, recorder.Parameter(2 * i - 1)});
    }
    return x;
  }
  [[nodiscard]] SampleSpec ExampleSample() const override { return MakeCaseSpec(test_); }
  [[nodiscard]] std::string Describe() const override { return "collective"; }

 private:
  [[nodiscard]] RowsByRank EqualRows(std::int64_t rows) const {
    return {.rows = std::vector<std::int64_t>(static_cast<std::size_t>(test_.ranks), rows),
            .rank = rank_};
  }
  ValueId Travel(nn::Recorder& recorder, ValueId weight, std::int64_t rows) const {
    const RowsByRank by_rank = EqualRows(rows);
    const auto share = std::make_shared<Multiply>(1 / static_cast<double>(test_.ranks));
    const std::vector<std::shared_ptr<const Function>> way = {
        std::make_shared<Broadcast>(test_.ranks - 1),
        std::make_shared<AllReduceMean>(test_.ranks),
        std::make_shared<AllGather>(by_rank),
        std::make_shared<ReduceScatter>(by_rank),
        share,
        std::make_shared<AllReduceSum>(),
        share};
    for (const auto& function : way) weight = recorder.Apply("travel", function, {weight});
    return weight;
  }

  EngineCase test_;
  int rank_;
};

ModelSpec MakeBertSpec(const EngineCase& test) {
  return {.architecture = BertSpec{
              .vocabulary = kTokenVocabulary,
              .context = test.texts + 2,
              .segments = 2,
              .layers = 2,
              .heads = 2,
              .width = test.widths.front(),
              .classes = test.widths.back(),
              .dropout = test.dropout,
              .head = test.masked ? BertHead::kMaskedLm : BertHead::kSequenceClassification}};
}

Model MakePairModel(const EngineCase& test) {
  const auto tower = [&](const char* input, std::int64_t in) {
    return TowerSpec{input, {{"fc", LinearSpec{in, test.widths[1], true}}, {"relu", ReluSpec{}}}};
  };
  const ModelSpec spec{
      .loss = ContrastiveSpec{},
      .architecture = DualEncoderSpec{.a = tower("features", test.widths.front()),
                                      .b = tower("targets", test.widths.back()),
                                      .width = test.widths[2],
                                      .temperature = 0.05,
                                      .max_scale = 14}};  // so the first update reaches it
  return Model::Make(spec, MakeCaseSpec(test)).value();
}

void AddSizes(const Plan& plan, int rank, std::set<std::int64_t>* sizes) {
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    if (plan.MicroBatch(rank, step) > 0) sizes->insert(plan.MicroBatch(rank, step));
  }
}

// Everything about the case that does not depend on the engine.
struct Setting {
  std::unique_ptr<Dataset> data;
  Model model;
  Plan plan;
  UpdateSchedule schedule;

  [[nodiscard]] Result<Plan> PlanUpdate(const Update& update) const {
    if (update.samples == plan.effective_batch()) return plan;
    return plan.ForSamples(update.samples);
  }
};

// Of as many pipelines as the case has ranks.
int DataRank(const EngineCase& test, const Communicator& comm) { return comm.rank() / test.stages; }

UpdateProgram SelectProgram(const EngineCase& test, const Model& model, const Plan& plan) {
  if (const auto& stage = model.stage()) {
    return PipelineStageProgram(plan, test.schedule, test.stages,
                                static_cast<std::int64_t>(stage->stage));
  }
  return SelectProgramGenerator(test.loss, model.update_sums())(plan);
}

Result<Setting> MakeSetting(const EngineCase& test, int rank) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, MakeCasePlan(test));
  auto data = MakeCaseData(test);
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         UpdateSchedule::Make({.dataset_size = data->size(),
                                               .batch = plan.effective_batch(),
                                               .epochs = 0,
                                               .max_updates = test.updates}));
  return Setting{std::move(data), MakeCaseModel(test, rank), plan, schedule};
}

Result<std::unique_ptr<Engine>> MakeCaseEngine(Communicator& comm, const EngineCase& test,
                                               const Setting& setting, const EngineChoice& choice) {
  ReplicaOptions replica{.micro_steps_per_update = setting.plan.accum_steps(),
                         .effective_batch = setting.plan.effective_batch(),
                         .rank_samples = setting.plan.Load(DataRank(test, comm)),
                         .recompute = test.recompute,
                         .any_split = setting.plan.any_split()};
  if (test.evaluate) replica.eval_batches = {test.target};
  for (std::int64_t u = 0; u < setting.schedule.updates(); ++u) {
    GACCD_ASSIGN_OR_RETURN(const Plan plan, setting.PlanUpdate(setting.schedule.At(u)));
    AddSizes(plan, DataRank(test, comm), &replica.micro_batches);
  }
  if (const auto& stage = setting.model.stage()) {
    replica.in_flight =
        InFlight(test.schedule, test.stages, static_cast<std::int64_t>(stage->stage),
                 setting.plan.accum_steps());
  }
  GACCD_ASSIGN_OR_RETURN(auto engine, MakeEngine(comm, setting.model,
                                                 {.replica = replica,
                                                  .optimizer = test.optimizer,
                                                  .shard = test.shard,
                                                  .numerics = test.numerics,
                                                  .choice = choice,
                                                  .control_word_count = test.control_words,
                                                  .tolerate_nonfinite = test.tolerate_nonfinite}));
  std::vector<float> parameters(static_cast<std::size_t>(setting.model.layout().size()));
  setting.model.Initialize(kSeed, parameters);
  GACCD_RETURN_IF_ERROR(engine->SetParameters(parameters));
  return engine;
}

Result<std::unique_ptr<Prefetcher>> StartBatches(const Setting& setting, Engine& engine, int rank) {
  const SampleOrder order(kSeed, setting.data->size(), /*shuffle=*/true);
  const int passes = setting.model.contrastive() ? 2 : 1;
  GACCD_ASSIGN_OR_RETURN(TrainIndices indices, TrainIndices::Make(order, setting.schedule,
                                                                  setting.plan, rank, 0, passes));
  const std::vector<std::int64_t>& cuts = setting.model.sample().cuts;
  if (!cuts.empty()) indices.GroupByLength(*setting.data);
  return Prefetcher::Start(*setting.data, std::make_unique<TrainIndices>(std::move(indices)),
                           {.held = engine.held_batches(),
                            .memory = [&](std::size_t bytes) { return engine.HostMemory(bytes); },
                            .cuts = cuts});
}

// One figure more, or the error.
Status KeepResult(Engine& engine, EngineRun* run) {
  GACCD_ASSIGN_OR_RETURN(const auto result, engine.PopResult(/*wait=*/true));
  if (!result) return {ErrorKind::kInternal, "no result came"};
  run->results.push_back(*result);
  run->results.back().control_words = {};
  run->control_words.emplace_back(result->control_words.begin(), result->control_words.end());
  return Status::Ok();
}

Status RunUpdates(const EngineCase& test, const Setting& setting, Engine& engine,
                  Prefetcher& batches, int rank, const EngineRunOptions& options, EngineRun* run) {
  std::vector<double> control_words(test.control_words);
  const auto in_flight = options.gradients ? 0 : engine.updates_in_flight();
  std::int64_t enqueued = 0;
  for (std::int64_t u = 0; u < setting.schedule.updates(); ++u) {
    GACCD_ASSIGN_OR_RETURN(const Plan plan, setting.PlanUpdate(setting.schedule.At(u)));
    const auto tell = [&] {
      for (std::size_t i = 0; i < control_words.size(); ++i)
        control_words[i] = ControlWord(rank, u, i);
    };
    // What is written before the reduction counts, not what there was at the beginning.
    std::ranges::fill(control_words, -1);
    if (options.update) tell();
    const UpdateSettings settings{.update = u,
                                  .lr = test.optimizer.lr * (1 + static_cast<double>(u % 3)),
                                  .clip_norm = test.clip_norm,
                                  .loss_scale = test.loss_scale,
                                  .control_words = control_words};
    GACCD_RETURN_IF_ERROR(
        options.update
            ? options.update(engine, batches, plan, settings)
            : RunUpdate(engine, batches, SelectProgram(test, setting.model, plan), settings,
                        {.on_progress = {}, .should_stop = {}, .before_reduce = tell}));
    ++enqueued;
    const bool last = enqueued == setting.schedule.updates();
    while (enqueued - std::ssize(run->results) > (last ? 0 : in_flight)) {
      GACCD_RETURN_IF_ERROR(KeepResult(engine, run));
    }
    if (!options.gradients) continue;
    run->gradients.emplace_back(static_cast<std::size_t>(setting.model.layout().size()));
    GACCD_RETURN_IF_ERROR(engine.GetGradients(run->gradients.back()));
  }
  return Status::Ok();
}

Status ReadOut(const EngineCase& test, const Setting& setting, Engine& engine, EngineRun* run) {
  const std::int64_t size = setting.model.layout().size();
  run->parameters.resize(static_cast<std::size_t>(size));
  run->state.resize(static_cast<std::size_t>(
      StateElements(test.optimizer, setting.model.layout().trainable_size())));
  GACCD_RETURN_IF_ERROR(engine.GetParameters(run->parameters));
  GACCD_ASSIGN_OR_RETURN(run->digest, engine.Digest());
  run->optimizer_updates = engine.optimizer_updates();
  return engine.Read(EngineBuffer::kOptimizer, 0, run->state);
}

Status EvaluateFirst(const EngineCase& test, const Setting& setting, Engine& engine,
                     EngineRun* run) {
  GACCD_ASSIGN_OR_RETURN(
      const auto batches,
      Prefetcher::Start(
          *setting.data,
          std::make_unique<EvalIndices>(EvalShard{.first = 0, .count = test.target}, test.target),
          {.slots = 2}));
  const BatchView& batch = *batches->Next();
  GACCD_RETURN_IF_ERROR(engine.ExchangeAverages());
  GACCD_ASSIGN_OR_RETURN(run->evaluation, engine.Evaluate(batch));
  std::vector<float> averages(run->parameters.size());
  GACCD_RETURN_IF_ERROR(engine.GetParameters(averages));
  GACCD_RETURN_IF_ERROR(engine.ExchangeAverages());
  std::vector<float> parameters(run->parameters.size());
  GACCD_RETURN_IF_ERROR(engine.GetParameters(parameters));
  if (parameters != run->parameters) return {ErrorKind::kInternal, "other parameters are back"};
  // Copies of the weights in another form must be those of the averages, too.
  GACCD_RETURN_IF_ERROR(engine.SetParameters(averages));
  GACCD_ASSIGN_OR_RETURN(const Evaluation again, engine.Evaluate(batch));
  if (again.loss_sum == run->evaluation.loss_sum) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("the averages give ", again.loss_sum, ", found ", run->evaluation.loss_sum)};
}

}  // namespace

double ControlWord(int rank, std::int64_t update, std::size_t element) {
  return static_cast<double>((rank + 1) * 1000 + update) + 0.25 * static_cast<double>(element);
}

Result<Plan> MakeCasePlan(const EngineCase& test) {
  return Plan::Make({.nodes = test.nodes,
                     .gpus_per_node = test.ranks / test.nodes,
                     .micro_batch = test.micro,
                     .target_batch = test.target,
                     .rounding = test.rounding,
                     .speeds = test.speeds,
                     .bits = test.bits});
}

std::unique_ptr<Dataset> MakeCaseData(const EngineCase& test) {
  const std::int64_t batch = MakeCasePlan(test).value().effective_batch();
  const std::int64_t size = test.tail > 0 ? 2 * batch + test.tail : 3 * batch;
  if (test.tokens > 0) return TokenData(size, MakeCaseSpec(test));
  if (test.texts > 0) {
    auto texts = TextData(size, MakeCaseSpec(test));
    if (!test.masked) return texts;
    return MakeMaskedDataset(std::move(texts), {.mask_token = 1, .probability = 0.3});
  }
  return HashedData(size, MakeCaseSpec(test), test.poisoned);
}

Model MakeCaseModel(const EngineCase& test, int rank) {
  const auto make = [&] {
    if (test.collectives) {
      auto network = std::make_shared<CollectiveNetwork>(test, rank);
      return Model::Make(std::move(network), test.loss, MakeCaseSpec(test)).value();
    }
    if (test.loss == LossKind::kContrastive) return MakePairModel(test);
    if (test.texts > 0) return Model::Make(MakeBertSpec(test), MakeCaseData(test)->spec()).value();
    ModelSpec spec;
    if (test.tokens > 0) {
      spec.layer.push_back({"wte", EmbeddingSpec{kTokenVocabulary, test.widths.front()}});
      if (test.dropout > 0) spec.layer.push_back({"drop", DropoutSpec{test.dropout}});
    }
    for (std::size_t i = 1; i < test.widths.size(); ++i) {
      if (i > 1 && test.stats) {
        spec.layer.push_back({StrCat("bn", i), BatchNormSpec{.num_features = test.widths[i - 1],
                                                             .stats = *test.stats,
                                                             .ghost_size = 3}});
      }
      if (i > 1) spec.layer.push_back({StrCat("relu", i), ReluSpec{}});
      if (i > 1 && test.dropout > 0) {
        spec.layer.push_back({StrCat("drop", i), DropoutSpec{test.dropout}});
      }
      spec.layer.push_back({StrCat("fc", i), LinearSpec{test.widths[i - 1], test.widths[i], true}});
    }
    return Model::Make(MakeNetwork(spec).value(), test.loss, MakeCaseSpec(test)).value();
  };
  Model model = make();
  Status made = model.ApplyRules(test.optimizer);
  if (made.ok() && test.stages > 1) {
    std::vector<std::int64_t> blocks(static_cast<std::size_t>(test.stages));
    for (std::size_t i = 0; i < model.BlockFlops().value().size(); ++i) ++blocks[i % blocks.size()];
    const int stage = rank % test.stages;
    made = model.SetStage(blocks, static_cast<std::size_t>(stage),
                          DividesBackward(test.schedule, stage));
  }
  if (!made.ok()) std::fprintf(stderr, "%s: %s\n", test.name.c_str(), made.message().c_str());
  if (!made.ok()) std::abort();  // a mistake in the case
  return model;
}

Result<EngineRun> RunEngine(Communicator& engine_comm, const EngineCase& test,
                            const EngineChoice& choice, const EngineRunOptions& options) {
  GACCD_ASSIGN_OR_RETURN(const Setting setting, MakeSetting(test, engine_comm.rank()));
  GACCD_ASSIGN_OR_RETURN(auto engine, MakeCaseEngine(engine_comm, test, setting, choice));
  GACCD_ASSIGN_OR_RETURN(auto batches, StartBatches(setting, *engine, DataRank(test, engine_comm)));
  EngineRun run;
  if (options.before_updates) options.before_updates();
  const auto start = std::chrono::steady_clock::now();
  const Status status =
      RunUpdates(test, setting, *engine, *batches, engine_comm.rank(), options, &run);
  run.wall_s = SecondsSince(start);
  if (options.after_updates) options.after_updates();
  if (!status.ok()) {
    if (options.failed) {
      GACCD_RETURN_IF_ERROR(ReadOut(test, setting, *engine, &run));
      options.failed(status, run.parameters, run.optimizer_updates);
    }
    return status;
  }
  GACCD_RETURN_IF_ERROR(ReadOut(test, setting, *engine, &run));
  if (test.evaluate) GACCD_RETURN_IF_ERROR(EvaluateFirst(test, setting, *engine, &run));
  return run;
}

Status UpdateByHand(Engine& engine, const Plan& plan, UpdateSettings settings,
                    const std::function<Status(std::int64_t step)>& micro_step) {
  settings.samples = plan.effective_batch();
  GACCD_RETURN_IF_ERROR(engine.Begin(settings));
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    GACCD_RETURN_IF_ERROR(micro_step(step));
  }
  GACCD_RETURN_IF_ERROR(engine.Reduce());
  GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
  GACCD_RETURN_IF_ERROR(engine.Audit());
  GACCD_RETURN_IF_ERROR(engine.Optimize());
  return engine.End();
}

double Distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return norm == 0 && difference == 0 ? 0 : std::sqrt(difference / norm);
}

double Projection(std::span<const float> a, std::span<const float> b) {
  double product = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    norm += static_cast<double>(b[i]) * b[i];
  }
  return product / norm;
}

}  // namespace gaccd::tests
