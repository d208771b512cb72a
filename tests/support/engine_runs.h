// A few updates on an engine, with other samples on every rank: what the engines of all devices are
// compared by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"
#include "daemon/plan/pipeline_schedule.h"
#include "daemon/plan/plan.h"
#include "tests/sanitized.h"

namespace gaccd::tests {

struct EngineCase {
  std::string name;
  int nodes = 1;
  int ranks = 1;  // of all nodes
  std::int64_t micro = 8;
  std::int64_t target = 8;
  Rounding rounding = Rounding::kExact;
  std::vector<double> speeds = {};  // by rank
  Bits bits = Bits::kThisSplit;
  std::int64_t updates = kSanitized ? 6 : 20;
  std::int64_t tail = 0;  // > 0: every third update is a smaller one, of so many samples
  std::vector<std::int64_t> widths = {12, 20, 16, 5};
  // kContrastive: a tower from features, one from targets, of the inner widths; evaluate is false.
  LossKind loss = LossKind::kSoftmaxCrossEntropy;
  OptimizerSpec optimizer = {.lr = 0.1, .kind = SgdSpec{.momentum = 0.9, .weight_decay = 1e-3}};
  double clip_norm = 0;
  double loss_scale = 1;
  Numerics numerics = {};
  std::int64_t poisoned = -1;     // this sample has a NaN among its features
  std::size_t control_words = 3;  // elements: ControlWord()
  bool tolerate_nonfinite = false;
  // > 0: sequences of so many tokens through an embedding of widths.front(), with a label for every
  // token, or none: -100. Other features have no meaning then.
  std::int64_t tokens = 0;
  bool token_weights = false;  // every label has its weight
  double dropout = 0;          // after every layer but the last
  // A batch norm after the same layers.
  std::optional<BatchStatistics> stats = std::nullopt;
  // > 0: a BERT for texts of up to so many tokens; widths.front() is its width.
  std::int64_t texts = 0;
  // > 0: they are grouped by length and cut to multiples of this.
  std::int64_t cut = 0;
  bool masked = false;  // tokens of the texts are hidden, in place of their labels
  // The features come last, after a tensor that the model does not use.
  bool other_tensors = false;
  // Every weight goes through all collective functions before it is used; what is computed is the
  // same.
  bool collectives = false;
  bool evaluate = true;  // not with collectives
  Sharding shard = Sharding::kNone;
  Recompute recompute = Recompute::kNone;
  // > 1: `ranks` pipelines of so many stages each, of as many blocks as can be.
  int stages = 1;
  PipelineSchedule schedule = PipelineSchedule::kOneFOneB;
};

inline void PrintTo(const EngineCase& test, std::ostream* out) { *out << test.name; }

// Of the case with tokens.
inline constexpr std::int64_t kTokenVocabulary = 11;

// What a rank saw.
struct EngineRun {
  std::vector<UpdateResult> results;               // by update; without control words
  std::vector<std::vector<double>> control_words;  // by update, summed
  std::vector<std::vector<float>> gradients;       // by update, if asked for
  std::vector<float> parameters;
  std::vector<float> state;
  std::int64_t optimizer_updates = 0;
  double wall_s = 0;         // of all updates, measured on the host
  std::uint64_t digest = 0;  // at the end
  Evaluation evaluation;     // of the first samples, at the end; by the averages, if there are any
};

struct EngineRunOptions {
  bool gradients = false;  // also those of every update (waits after each)
  std::function<void()> before_updates = nullptr;
  std::function<void()> after_updates = nullptr;
  // In place of RunUpdate(), to make mistakes.
  std::function<Status(Engine&, Prefetcher&, const Plan&, UpdateSettings)> update = nullptr;
  // The parameters and the number of updates when the run failed; its error is the run's.
  std::function<void(const Status&, std::span<const float>, std::int64_t)> failed = nullptr;
};

// What a rank tells in an update: sums of it over the ranks are exact.
[[nodiscard]] double ControlWord(int rank, std::int64_t update, std::size_t element);

[[nodiscard]] Result<Plan> MakeCasePlan(const EngineCase& test);
// The data set, a function of the case.
[[nodiscard]] std::unique_ptr<Dataset> MakeCaseData(const EngineCase& test);
[[nodiscard]] Model MakeCaseModel(const EngineCase& test, int rank = 0);

// Runs the case on one rank. Collective: `engine_comm` belongs to the engine.
Result<EngineRun> RunEngine(Communicator& engine_comm, const EngineCase& test,
                            const EngineChoice& choice, const EngineRunOptions& options = {});

// One update in place of RunUpdate(): `micro_step` for every step, then what follows them.
Status UpdateByHand(Engine& engine, const Plan& plan, UpdateSettings settings,
                    const std::function<Status(std::int64_t step)>& micro_step);

// |a - b| / |b|, Euclidean norms.
[[nodiscard]] double Distance(std::span<const float> a, std::span<const float> b);
// <a, b> / <b, b>: the factor on b that is nearest to a. Rounding hardly moves it, a wrong weight
// does.
[[nodiscard]] double Projection(std::span<const float> a, std::span<const float> b);

// Data sets of the cases of engine_runs.h. Every value is a function of the number of its sample.

// "tokens" and "labels" [T], with "weights" where the spec has them. Sequences have different
// numbers of labels, some none.
[[nodiscard]] std::unique_ptr<Dataset> TokenData(std::int64_t size, const SampleSpec& spec);

// "tokens" and "segments" [T], "lengths" [] from 1 to T, "labels" [] where there are classes. What
// lies beyond the length of a text is another text.
[[nodiscard]] std::unique_ptr<Dataset> TextData(std::int64_t size, const SampleSpec& spec);

// "features" and labels or targets. poisoned: this sample has a NaN; -1: none.
[[nodiscard]] std::unique_ptr<Dataset> HashedData(std::int64_t size, const SampleSpec& spec,
                                                  std::int64_t poisoned);

}  // namespace gaccd::tests
