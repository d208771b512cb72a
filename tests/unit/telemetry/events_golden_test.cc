// Every kind of event with all of its members against tests/golden/events.txt: keys and their order
// are a contract with dashboards, the lines of text one with users.
//   GACCD_UPDATE_GOLDEN=1 ctest --preset release -R telemetry_test     rewrites the file
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/inspect/watch/step_sum.h"
#include "daemon/plan/plan.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/run_status.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

const RunIdentity kGoldenWriter{"r50-3072", "8123456", 1, 0, "gpu-a001"};

// Sets all members of a record: numbers count up, a text is its key or `text`.
class SampleFields {
 public:
  explicit SampleFields(const char* text = nullptr) : text_(text) {}

  void operator()(std::string_view /*key*/, bool& value) { value = true; }
  void operator()(std::string_view /*key*/, std::integral auto& value) { value = ++number_; }
  void operator()(std::string_view /*key*/, double& value) { value = ++number_ + 0.5; }
  void operator()(const char* key, std::string& value) { value = text_ ? text_ : key; }
  template <typename T>
  void operator()(std::string_view key, std::optional<T>& value) {
    (*this)(key, value.emplace());
  }
  void Text(const char* key, auto& value, std::size_t /*limit*/) { value = text_ ? text_ : key; }
  void NotZero(std::string_view key, auto& value) { (*this)(key, value); }
  void List(std::string_view /*key*/, std::vector<int>& values, std::size_t /*limit*/) {
    values.assign(text_ ? 4096 : 2, ++number_);
  }
  void Computed(std::string_view /*key*/, const auto& /*value*/) {}
  void When(bool /*condition*/, const auto& visit) { visit(); }
  void Group(const auto& /*keys*/, auto& group, const auto& visit) { visit(group.emplace()); }
  template <typename T>
  void Group(std::initializer_list<std::string_view> /*keys*/, std::optional<T>& group,
             const auto& visit) {
    visit(group.emplace());
  }

 private:
  const char* text_;
  int number_ = 0;
};

template <EventRecord Record>
Record Sample(const char* text = nullptr) {
  Record record;
  SampleFields fields(text);
  Record::VisitFields(fields, record);
  return record;
}

template <EventRecord Record>
std::string Line(const Record& record, const RunIdentity& who = kGoldenWriter) {
  return EventJson(who, {"2026-11-20T03:14:05.123456Z", 412, GetLevel(record)}, record);
}

// Calls `visit` with a new record of every kind, except plan and thinned, which have another form.
void VisitKinds(const auto& visit) {
  const auto each = [&](auto... kinds) { (visit(kinds), ...); };
  each(StageRecord{}, RunStart{}, WeightsRecord{}, ResumeRecord{}, StepRecord{}, RankStepRecord{},
       NoiseScaleRecord{}, RebalanceRecord{}, TargetRecord{}, MetricRecord{}, SaveRecord{},
       HeartbeatRecord{}, AllocationRetryRecord{}, LogLine{}, DroppedLines{}, MemoryRecord{},
       Failure{}, Verdict{});
}

TEST(EventsGoldenTest, KeysAndLinesOfEveryKind) {
  std::string found;
  VisitKinds([&]<typename Record>(const Record& fresh) {
    const Record sample = Sample<Record>();
    found += StrCat(Line(fresh), "\n", Line(sample), "\n");
    if constexpr (requires { EventLine(sample); }) found += StrCat(EventLine(sample), "\n");
  });
  const auto plan = ValueOrThrow(
      Plan::Make({.nodes = 1, .gpus_per_node = 2, .target_batch = 30, .speeds = {1, 0.5}}));
  found += Line(PlanRecord{plan, ""}) + "\n";
  auto pipeline = ValueOrThrow(Plan::Make({.nodes = 1,
                                           .gpus_per_node = 2,
                                           .target_batch = 30,
                                           .recompute = Recompute::kBlocks,
                                           .stages = 2}));
  pipeline.set_memory({.bytes = 7, .limit = 8});
  found += Line(PlanRecord{pipeline, ""}) + "\n";
  const auto any_split = ValueOrThrow(
      Plan::Make({.nodes = 1, .gpus_per_node = 2, .target_batch = 30, .bits = Bits::kAnySplit}));
  found += Line(PlanRecord{any_split, ""}) + "\n";
  Event newest;
  ASSERT_TRUE(ParseEvent(Line(Sample<StepRecord>()), &newest));
  found += StepSum::FromEvent(newest).Line(newest) + "\n";
  const char* const path = GACCD_EVENTS_GOLDEN;
  if (std::getenv("GACCD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << found;
  EXPECT_EQ(found, testing_json::Content(path)) << "after a change that is meant: "
                                                << "GACCD_UPDATE_GOLDEN=1";
}

TEST(EventsGoldenTest, EveryKindReadsBack) {
  VisitKinds([]<typename Record>(const Record&) {
    if constexpr (!std::same_as<Record, StageRecord> && !std::same_as<Record, LogLine>) {
      for (const Record& record : {Record{}, Sample<Record>()}) {
        EXPECT_EQ(Line(ValueOrThrow(ReadEvent<Record>(Line(record)))), Line(record));
      }
    }
  });
}

// Loki and Fluent Bit give up on long lines: whatever the texts are, a line stays below 4096 bytes.
TEST(EventsGoldenTest, LinesOfEveryKindStayShort) {
  for (const std::string& text :
       {std::string(100'000, 'x'), std::string(100'000, '\n'), std::string(100'000, '\x01'),
        std::string(1200, '\x02'), std::string(100'000, '\xff'), std::string(70, '"')}) {
    const RunIdentity who{text, text, 1'000'000, 239, text};
    VisitKinds([&]<typename Record>(const Record&) {
      // Their lists of loads and of hosts need no escaping.
      const bool lists = std::same_as<Record, RebalanceRecord> || std::same_as<Record, Verdict>;
      if (lists && text.front() != 'x') return;
      const std::string line = Line(Sample<Record>(text.c_str()), who);
      EXPECT_LT(line.size(), kMaxLineBytes) << Record::kEvent;
      EXPECT_EQ(line.find('\n'), std::string::npos) << Record::kEvent;
      testing_json::Parse(line);
    });
  }
}

}  // namespace
}  // namespace gaccd
