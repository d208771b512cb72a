// The rings of messages of stages on GPUs: whatever the schedule, no stream waits for ever, also
// where a message holds up its sender until its receiver is there. The streams of all stages as
// lists of what they wait for, in the order in which the hosts enqueue it (CudaMessageRing).
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/plan/pipeline_schedule.h"
#include "daemon/replica/stage_messages.h"

namespace gaccd {
namespace {

using Message = Replica::Message;
using Kind = PipelineAction::Kind;

// What has happened: which, of stage, of micro-batch; those of later updates have higher numbers.
enum class What { kMade, kMadeGradient, kMoved, kMovedGradient, kReleased };
using Happened = std::tuple<What, std::int64_t, std::int64_t>;

struct Operation {
  std::vector<Happened> waits;
  std::vector<Happened> makes;
};
using Stream = std::vector<Operation>;

struct Stage {
  Stream compute;
  std::map<Message, Stream> messages;
};

// Places of a ring, by what must have happened before it is used again.
class Places {
 public:
  explicit Places(std::int64_t count) : count_(count) {}
  std::vector<Happened> Take(std::int64_t index, const Happened& until) {
    std::vector<Happened> before;
    if (const auto found = until_.find(index % count_); found != until_.end()) {
      before.push_back(found->second);
    }
    until_[index % count_] = until;
    return before;
  }

 private:
  std::int64_t count_;
  std::map<std::int64_t, Happened> until_;
};

struct RingSetting {
  PipelineSchedule schedule = PipelineSchedule::kGpipe;
  std::int64_t stages = 2;
  std::int64_t micro_batches = 1;
  std::function<std::int64_t(Message which, std::int64_t in_flight)> places = RingPlaces;
};

class StageOrder {
 public:
  StageOrder(const RingSetting& setting, std::int64_t stage)
      : setting_(setting),
        s_(stage),
        in_flight_(InFlight(setting.schedule, setting.stages, stage, setting.micro_batches)) {}

  // Of two updates.
  Stage Make() {
    for (std::int64_t first : {std::int64_t{0}, setting_.micro_batches}) {
      for (const PipelineAction& action :
           PipelineActions(setting_.schedule, setting_.stages, s_, setting_.micro_batches)) {
        Add(action.kind, action.micro_batch, first + action.micro_batch);
      }
    }
    return std::move(made_);
  }

 private:
  void Add(Kind kind, std::int64_t in_update, std::int64_t m) {
    const bool last = s_ + 1 == setting_.stages;
    if (kind == Kind::kBackward && last) return;
    const Happened released{What::kReleased, s_, m};
    if (kind == Kind::kForward && s_ > 0) {
      Receive(Message::kReceived, {What::kMoved, s_ - 1, m}, in_update, released);
    }
    if (kind == Kind::kBackward) {
      Receive(Message::kReceivedGradient, {What::kMovedGradient, s_ + 1, m}, in_update, released);
    }
    if (kind == Kind::kForward && !last) Send(Message::kSent, What::kMade, What::kMoved, m);
    if (s_ > 0 && (kind == Kind::kBackward || (kind == Kind::kForward && last))) {
      Send(Message::kSentGradient, What::kMadeGradient, What::kMovedGradient, m);
    }
    const Kind ends = DividesBackward(setting_.schedule, s_) ? Kind::kWeights
                      : last                                 ? Kind::kForward
                                                             : Kind::kBackward;
    if (kind == ends) made_.compute.push_back({{}, {released}});
  }

  void Receive(Message which, const Happened& moved, std::int64_t in_update,
               const Happened& released) {
    auto& places = PlacesFor(which);
    made_.messages[which].push_back({places.Take(in_update, released), {moved}});
    made_.compute.push_back({{moved}, {}});
  }

  void Send(Message which, What made, What moved, std::int64_t m) {
    const Happened left{moved, s_, m};
    made_.compute.push_back({PlacesFor(which).Take(sent_[which]++, left), {{made, s_, m}}});
    made_.messages[which].push_back({{{made, s_, m}}, {left}});
  }

  Places& PlacesFor(Message which) {
    return places_.try_emplace(which, setting_.places(which, in_flight_)).first->second;
  }

  const RingSetting& setting_;
  std::int64_t s_;
  std::int64_t in_flight_;
  Stage made_;
  std::map<Message, Places> places_;
  std::map<Message, std::int64_t> sent_;
};

// All streams until none moves. A message moves when both of its sides have come to it.
class World {
 public:
  explicit World(const RingSetting& setting) {
    for (std::int64_t s = 0; s < setting.stages; ++s) {
      stages_.push_back(StageOrder(setting, s).Make());
    }
  }

  bool Ends() {
    while (MoveAll()) {
    }
    for (Stage& stage : stages_) {
      if (!stage.compute.empty()) return false;
    }
    return true;
  }

 private:
  bool MoveAll() {
    bool moved = false;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      while (IsReady(stages_[s].compute)) {
        Leave(stages_[s].compute);
        moved = true;
      }
      if (s + 1 == stages_.size()) break;
      moved =
          Meet(stages_[s].messages[Message::kSent], stages_[s + 1].messages[Message::kReceived]) ||
          moved;
      moved = Meet(stages_[s + 1].messages[Message::kSentGradient],
                   stages_[s].messages[Message::kReceivedGradient]) ||
              moved;
    }
    return moved;
  }
  bool IsReady(const Stream& stream) {
    if (stream.empty()) return false;
    for (const Happened& wait : stream.front().waits) {
      if (!happened_.contains(wait)) return false;
    }
    return true;
  }
  void Leave(Stream& stream) {
    happened_.insert(stream.front().makes.begin(), stream.front().makes.end());
    stream.erase(stream.begin());
  }
  bool Meet(Stream& sent, Stream& received) {
    if (!IsReady(sent) || !IsReady(received)) return false;
    EXPECT_EQ(sent.front().makes, received.front().makes) << "messages in another order";
    Leave(sent);
    Leave(received);
    return true;
  }

  std::vector<Stage> stages_;
  std::set<Happened> happened_;
};

TEST(PipelineRingsTest, NoStreamDeadlocks) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    for (std::int64_t stages = 2; stages <= 6; ++stages) {
      for (std::int64_t count = 1; count <= 14; ++count) {
        EXPECT_TRUE(World({schedule, stages, count}).Ends())
            << Name(schedule) << ", " << stages << " stages, " << count << " micro-batches";
      }
    }
  }
}

// The measure sees it.
TEST(PipelineRingsTest, OneGradientSlotIsTooFewForGpipe) {
  const auto one = [](Message which, std::int64_t in_flight) {
    return which == Message::kReceivedGradient ? 1 : RingPlaces(which, in_flight);
  };
  EXPECT_FALSE(World({PipelineSchedule::kGpipe, 2, 9, one}).Ends());
  EXPECT_TRUE(World({PipelineSchedule::kOneFOneB, 4, 9, one}).Ends());
}

}  // namespace
}  // namespace gaccd
