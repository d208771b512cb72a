// Pipelines on CPUs alone: every optimiser; stages that are gathered in several pieces;
// several parameters that stages share.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/comm/forwarding_communicator.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/pipeline_exchange.h"
#include "tests/support/pipeline_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

TEST(CpuPipelines, StepsWithEveryOptimizer) {
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    ExpectWhole({.name = optimizer.name,
                 .ranks = 2,
                 .micro = 4,
                 .target = 13,
                 .updates = 4,
                 .optimizer = optimizer.spec,
                 .clip_norm = 0.1},
                2, PipelineSchedule::kOneFOneB);
  }
}

// The second stage has 364,000 elements: more than a piece of 262,144, and it begins inside one.
TEST(CpuPipelines, GathersStageInPieces) {
  ExpectWhole({.name = "wide",
               .ranks = 1,
               .micro = 2,
               .target = 4,
               .updates = 1,
               .widths = {24, 600, 600, 5}},
              2, PipelineSchedule::kOneFOneB);
}

// Refuses collectives while messages of its rank may not have been sent, as do all that are split
// from it.
class FlushedCommunicator final : public ForwardingCommunicator {
 public:
  FlushedCommunicator(Communicator& inner, bool* sends)
      : ForwardingCommunicator(inner), sends_(sends) {}
  FlushedCommunicator(std::unique_ptr<Communicator> inner, bool* sends)
      : FlushedCommunicator(*inner, sends) {
    own_ = std::move(inner);
  }

  Status FlushSends() override {
    *sends_ = false;
    return inner().FlushSends();
  }
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    GACCD_ASSIGN_OR_RETURN(auto made, inner().Split(color, key));
    if (!made) return made;
    return std::unique_ptr<Communicator>(new FlushedCommunicator(std::move(made), sends_));
  }

 private:
  [[nodiscard]] Status CheckFlushed() const {
    return *sends_ ? Status(ErrorKind::kInternal, "collective: expected FlushSends() before it")
                   : Status::Ok();
  }
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    GACCD_RETURN_IF_ERROR(CheckFlushed());
    return inner().AllReduceSum(in, out, stream);
  }
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override {
    GACCD_RETURN_IF_ERROR(CheckFlushed());
    return inner().AllGather(in, counts, out, stream);
  }
  Status DoSend(ConstBuffer message, int to, StreamHandle stream) override {
    *sends_ = true;
    return inner().Send(message, to, stream);
  }

  bool* sends_;
  std::unique_ptr<Communicator> own_;
};

// With all that are split from it, which `all` lists.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  using List = std::vector<WatchedCommunicator*>;
  WatchedCommunicator(Communicator& inner, List* all) : ForwardingCommunicator(inner), all_(all) {}
  WatchedCommunicator(std::unique_ptr<Communicator> inner, List* all)
      : WatchedCommunicator(*inner, all) {
    own_ = std::move(inner);
  }

  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    GACCD_ASSIGN_OR_RETURN(auto made, inner().Split(color, key));
    if (!made) return made;
    auto watched = std::make_unique<WatchedCommunicator>(std::move(made), all_);
    all_->push_back(watched.get());
    return std::unique_ptr<Communicator>(std::move(watched));
  }
  Status Poll() override { return error; }
  void CancelPending(const Status& ended) override { error = ended; }

  Status error;

 private:
  List* all_;
  std::unique_ptr<Communicator> own_;
};

// Of the pipeline, of the stage, and of the parameter that two stages share.
TEST(CpuPipelines, PollsAndEndsEveryCommunicator) {
  FlatLayout layout;
  for (const char* name : {"shared", "own"}) ASSERT_TRUE(layout.Add(name, {3}).ok());
  ExpectOk(RunThreadRanks(2, {}, [&](Communicator& inner) -> Status {
    WatchedCommunicator::List all;
    WatchedCommunicator comm(inner, &all);
    GACCD_ASSIGN_OR_RETURN(
        const PipelineStage stage,
        DivideParameters(layout, {{0}, {0, 1}}, {1, 1}, static_cast<std::size_t>(comm.rank())));
    GACCD_ASSIGN_OR_RETURN(const auto exchange,
                           PipelineExchange::Make(comm, stage, layout, layout, 0));
    EXPECT_EQ(all.size(), 3U);
    for (WatchedCommunicator* const one : all) {
      one->error = {ErrorKind::kUnavailable, "lost"};
      EXPECT_THAT(exchange->Poll(), HasKind(ErrorKind::kUnavailable));
      one->error = {};
    }
    EXPECT_OK(exchange->Poll());
    exchange->CancelPending({ErrorKind::kInterrupted, "ended"});
    for (const WatchedCommunicator* one : all) {
      EXPECT_THAT(one->error, HasKind(ErrorKind::kInterrupted));
    }
    return Status::Ok();
  }));
}

// Also those of an evaluation.
TEST(CpuPipelines, SendsMessagesBeforeCollectives) {
  const EngineCase test = InStages({.name = "flushed", .ranks = 1, .micro = 4, .target = 13}, 2,
                                   PipelineSchedule::kOneFOneB);
  ExpectOk(RunThreadRanks(2, {}, [&](Communicator& inner) -> Status {
    bool sends = false;
    FlushedCommunicator comm(inner, &sends);
    return RunRank(comm, test, {}, {}).status();
  }));
}

TEST(CpuPipelines, SumsAndSendsEverySharedParameter) {
  FlatLayout layout;
  for (const char* name : {"a", "b", "own"}) ASSERT_TRUE(layout.Add(name, {3}).ok());
  const auto size = static_cast<std::size_t>(layout.size());
  ExpectOk(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    const auto rank = static_cast<std::size_t>(comm.rank());
    GACCD_ASSIGN_OR_RETURN(const PipelineStage stage,
                           DivideParameters(layout, {{0, 1}, {0, 1, 2}}, {1, 1}, rank));
    GACCD_ASSIGN_OR_RETURN(const auto exchange,
                           PipelineExchange::Make(comm, stage, layout, layout, 0));
    const auto own = static_cast<float>(1 + comm.rank());
    std::vector<float> gradients(size, own);
    std::vector<float> parameters(size, own);
    UpdateGraph graph;
    GACCD_RETURN_IF_ERROR(exchange->RecordReduceShared(graph, View(std::span(gradients))));
    GACCD_RETURN_IF_ERROR(exchange->RecordSendShared(graph, View(std::span(parameters))));
    GACCD_RETURN_IF_ERROR(graph.Run(graph.Since(0)));
    for (const FlatEntry& entry : layout.entries()) {
      const auto last = static_cast<std::size_t>(entry.offset + entry.elements - 1);
      EXPECT_EQ(gradients[last], entry.name == "own" ? own : 3) << entry.name;
      EXPECT_EQ(parameters[last], entry.name == "own" ? own : 1) << entry.name;
    }
    return Status::Ok();
  }));
}

// Exported graphs have their constants after all parameters.
TEST(CpuPipelines, LastStageOwnsConstantsOfOthers) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("first", {3}).ok());
  ASSERT_TRUE(layout.Add("last", {3}).ok());
  ASSERT_TRUE(layout.Add("constant", {3}, {}, /*frozen=*/true).ok());
  for (const std::size_t stage : {0U, 1U}) {
    const auto made = ValueOrThrow(DivideParameters(layout, {{0, 2}, {1}}, {1, 1}, stage));
    EXPECT_EQ(made.parts[0].elements, layout.entries()[0].padded_elements());
    EXPECT_EQ(made.parts[1].elements, layout.size() - made.parts[0].elements);
    EXPECT_EQ(made.parts[1].state_elements, layout.entries()[1].padded_elements());
    EXPECT_TRUE(made.shared.empty());
    EXPECT_EQ(made.uses[2], stage == 0);
    EXPECT_EQ(made.owns(layout.entries()[2]), stage == 1);
  }
  EXPECT_FALSE(DivideParameters(layout, {{1}, {0}}, {1, 1}, 0).ok());
}

}  // namespace
}  // namespace gaccd::tests
