// A sharded optimiser on CPUs and on GPUs: state that any mode and world reads, and the bytes that
// ranks send.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/measure.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/random.h"
#include "daemon/tensor/shard_layout.h"
#include "tests/sanitized.h"
#include "tests/support/pipeline_runs.h"
#include "tests/support/shard_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

std::vector<float> Values(std::uint64_t seed, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(Mix64(seed + i) >> 40) / 1e6F;
  }
  return values;
}

// The parameters that an evaluation takes: the averages, which end the state, where there are any.
std::vector<float> ReadAverages(const FlatLayout& layout, const std::vector<float>& parameters,
                                std::span<const float> state) {
  std::vector<float> averages = parameters;
  auto value = state.end() - layout.trainable_size();
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.frozen) continue;
    std::copy_n(value, entry.padded_elements(), averages.begin() + entry.offset);
    value += entry.padded_elements();
  }
  return averages;
}

// Whatever mode and world has a state, it is read as it was set: so what one saves, all others
// continue.
void ExpectStateInAnyMode(const EngineCase& test, const std::vector<Nodes>& worlds) {
  const Model model = MakeCaseModel(test);
  const std::vector<float> parameters = Values(1, model.layout().size());
  const std::vector<float> state =
      Values(2, StateElements(test.optimizer, model.layout().trainable_size()));
  const std::vector<float> averages = ReadAverages(model.layout(), parameters, state);
  const auto check = [&](Communicator& comm, const EngineOptions& options) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, model, options));
    GACCD_RETURN_IF_ERROR(engine->SetParameters(parameters));
    GACCD_RETURN_IF_ERROR(engine->SetOptimizer(state, 3));
    // Every rank asks for another range, one for nothing.
    const auto first = static_cast<std::size_t>(comm.rank() * 100);
    std::vector<float> part(comm.rank() == 1 ? 0 : state.size() - 1000);
    GACCD_RETURN_IF_ERROR(
        engine->Read(EngineBuffer::kOptimizer, static_cast<std::int64_t>(first), part));
    EXPECT_TRUE(std::ranges::equal(part, std::span(state).subspan(first, part.size())));
    std::vector<float> found(parameters.size());
    for (const std::vector<float>& expected : {averages, parameters}) {
      GACCD_RETURN_IF_ERROR(engine->ExchangeAverages());
      GACCD_RETURN_IF_ERROR(engine->GetParameters(found));
      EXPECT_EQ(found, expected);
    }
    GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine->Digest());
    EXPECT_EQ(digest, ComputeDigest(parameters));
    return Status::Ok();
  };
  for (const Nodes& nodes : worlds) {
    if (kSanitized && nodes.size() != 3) continue;
    for (const Sharding mode : kAllModes) {
      SCOPED_TRACE(DescribeSharding(mode, nodes));
      EXPECT_OK(OnTestedRanks(
          nodes, [&](Communicator& over, const EngineChoice& choice, Communicator* device_comm) {
            return check(device_comm ? *device_comm : over, MakeEngineOptions(test, mode, choice));
          }));
    }
  }
}

// Several pieces of state are gathered, and parts begin and end inside of them.
TEST(ShardState, IsSameInAnyModeOnAnyRanks) {
  EngineCase test{.widths = {64, 600, 500, 5}, .optimizer = kAveragedAdamW};
  if (OnGpus()) {
    ExpectStateInAnyMode(test, {{0, 0, 1}, {0, 0, 0, 1}, {0, 1, 0, 1}, {0}});
    return;
  }
  test.widths = {64, 900, 800, 5};  // 779,000 values, 3 pieces a buffer
  ExpectStateInAnyMode(test, {{0, 0, 1}, {0, 0, 0, 1, 1}, {0, 0, 0, 1, 1, 2, 2}, {0}});
}

TEST(ShardState, HasNoPartForFrozenParameters) {
  EngineCase test{.widths = kBlocks, .optimizer = kAveragedAdamW};
  test.optimizer.group = {{.match = "fc2.weight", .freeze = true}};
  std::vector<Nodes> worlds = {{0, 0, 0}};
  if (!OnGpus()) worlds.insert(worlds.end(), {Nodes(1), Nodes(5), Nodes(7)});
  ExpectStateInAnyMode(test, worlds);
}

// What all ranks have sent between the beginning of the first update and the end of the last.
CommTraffic TrafficOfUpdates(const Nodes& nodes, const EngineCase& test) {
  std::mutex mutex;
  CommTraffic all;
  EXPECT_OK(OnTestedRanks(
      nodes, [&](Communicator& over, EngineChoice choice, Communicator* device_comm) -> Status {
        Communicator& comm = device_comm ? *device_comm : over;
        CommTraffic before;
        CommTraffic after;
        choice.bucket_elements = 1;
        GACCD_RETURN_IF_ERROR(RunEngine(comm, test, choice,
                                        {.before_updates = [&] { before = comm.traffic(); },
                                         .after_updates = [&] { after = comm.traffic(); }})
                                  .status());
        const std::lock_guard lock(mutex);
        all.sent += after.sent - before.sent;
        all.between_nodes += after.between_nodes - before.between_nodes;
        return Status::Ok();
      }));
  return all;
}

// In all modes; the last words are the sums of losses and counts, and the control words.
void ExpectTrafficOfTheFormula(const Nodes& nodes, EngineCase test) {
  const std::vector<int> ranks = CountRanksPerNode(nodes);
  const FlatLayout layout = MakeCaseModel(test).layout();
  for (const Sharding mode : kAllModes) {
    SCOPED_TRACE(StrCat(DescribeSharding(mode, nodes), ", ", test.target, " samples"));
    // GPUs do not send the gaps between the messages of a gradient that is not sharded.
    if (OnGpus() && ShardGrid::Make(mode, ranks).parts() == 1) continue;
    test.shard = mode;
    const CommTraffic found = TrafficOfUpdates(nodes, test);
    CommTraffic update = UpdateTraffic(mode, layout, ranks);
    update += SumTraffic(
        static_cast<std::int64_t>(sizeof(UpdateSums) + test.control_words * sizeof(double)), ranks);
    EXPECT_EQ(found.sent, test.updates * update.sent);
    EXPECT_EQ(found.between_nodes, test.updates * update.between_nodes);
  }
}

// Whatever the number of micro-steps and messages.
TEST(ShardTraffic, BytesEqualFormula) {
  std::vector<Nodes> worlds = {{0, 0, 0}, {0, 0, 1, 1}, {0, 0, 1}};
  if (!OnGpus()) {
    worlds = {{0},          {0, 0, 0, 0, 0},    {0, 1, 2},
              {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 1, 2, 2}};
  }
  for (const Nodes& nodes : worlds) {
    for (const std::int64_t steps : {1, 3}) {
      if (OnGpus() && steps == 1) continue;
      EngineCase test = RaggedCase(static_cast<int>(nodes.size()), steps, kEveryOptimizer[6], 6);
      test.updates = 3;
      test.evaluate = false;
      ExpectTrafficOfTheFormula(nodes, test);
    }
  }
}

// Also those of pipelines: reductions of stages, shared parameters, sums of losses and counts, and
// activations and their gradients.
void ExpectTrafficOfStages(const EngineCase& test, int pipelines_per_node) {
  const Nodes nodes = NodesOfPipelines(test.ranks, test.stages, pipelines_per_node);
  std::vector<int> ranks = CountRanksPerNode(nodes);
  CommTraffic update = SumTraffic(
      static_cast<std::int64_t>(sizeof(UpdateSums) + test.control_words * sizeof(double)), ranks);
  std::ranges::transform(ranks, ranks.begin(),
                         [&](int count) { return count / static_cast<int>(test.stages); });
  for (int stage = 0; stage < test.stages; ++stage) {
    const Model model = MakeCaseModel(test, stage);
    const auto reduced = StageTraffic(test.shard, model.layout(), *model.stage(), ranks);
    ASSERT_OK(reduced);
    update += *reduced;
    const auto sample = model.RecordTraining({1}, Precision::kF32);
    ASSERT_OK(sample);
    for (const auto& sent : {sample->ends.sent, sample->ends.sent_gradient}) {
      if (sent) update.sent += test.target * sample->graph.value(*sent).spec.bytes();
    }
  }
  const CommTraffic found = TrafficOfUpdates(nodes, test);
  EXPECT_EQ(found.sent, test.updates * update.sent);
  EXPECT_EQ(found.between_nodes, test.updates * update.between_nodes);
}

TEST(ShardTraffic, BytesOfPipelinesEqualFormula) {
  if (OnGpus()) return;  // they do not send the gaps between messages
  EngineCase layers = RaggedCase(4, 3, kEveryOptimizer[6], 6);
  layers.tail = 0;
  layers.updates = 3;
  layers.evaluate = false;
  EngineCase tied = layers;  // word embeddings of the first and the last stage
  tied.optimizer = EngineCase().optimizer;
  tied.widths = {16, 5};
  tied.texts = 12;
  tied.masked = true;
  for (const int stages : {2, 3}) {
    if (kSanitized && stages == 2) continue;
    for (const Sharding mode : kAllModes) {
      for (const int per_node : {0, 2, 3}) {
        SCOPED_TRACE(StrCat(Name(mode), ", ", stages, " stages, ", per_node, " a node"));
        for (EngineCase test : {layers, tied}) {
          test.shard = mode;
          ExpectTrafficOfStages(InStages(test, stages, PipelineSchedule::kOneFOneB), per_node);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
