// The ranks of a node open the data together.
#include "daemon/train/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <span>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/telemetry/log.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tick_counter.h"

namespace gaccd {
namespace {

using ::testing::_;
using ::testing::Each;
using ::testing::Ge;

constexpr std::uint32_t kFileSamples = 300;
constexpr std::uint32_t kFileFeatures = 12;

// Every rank's data, read through the data set.
struct Opened {
  Status status;
  std::vector<float> features;
  std::vector<std::int32_t> labels;
};

std::vector<float> AllFeatures(const Dataset& data, std::vector<std::int32_t>* labels) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < data.size(); ++i) indices.push_back(i);
  std::vector<float> features(static_cast<std::size_t>(data.size() * kFileFeatures));
  labels->resize(indices.size());
  void* const tensors[] = {features.data(), labels->data()};
  data.Gather(indices, {.samples = data.size(), .tensors = tensors});
  return features;
}

class OpenDataTest : public ::testing::Test {
 protected:
  IdxSpec Source(const std::string& name) {
    std::string images;
    std::string labels;
    for (std::int64_t i = 0; i < std::int64_t{kFileSamples} * kFileFeatures; ++i) {
      images += static_cast<char>(i * i % 251);
    }
    for (std::int64_t i = 0; i < kFileSamples; ++i) labels += static_cast<char>(i % 10);
    return {.images = folder_.Write(name + ".x.gz",
                                    Gzip(IdxHeader(8, {kFileSamples, kFileFeatures}) + images)),
            .labels = folder_.Write(name + ".y.gz", Gzip(IdxHeader(8, {kFileSamples}) + labels)),
            .classes = 10};
  }

  static Job MakeJob(const SourceSpec& train) {
    Job job;
    job.data.train = train;
    return job;
  }

  static std::vector<Opened> Open(const Job& job, int ranks, int ranks_per_node,
                                  const BadRecordRules& rules = {}) {
    std::vector<Opened> opened(static_cast<std::size_t>(ranks));
    const auto body = [&](Communicator& comm) {
      TrainingData data;
      Opened& mine = opened[static_cast<std::size_t>(comm.rank())];
      mine.status = OpenSharedData(comm, job, rules, &data).status;
      if (mine.status.ok() && data.train->spec().tensors[0].elements() == kFileFeatures) {
        mine.features = AllFeatures(*data.train, &mine.labels);
      }
      return Status::Ok();
    };
    EXPECT_OK(RunThreadRanks(ranks, {.comm = {}, .ranks_per_node = ranks_per_node}, body));
    return opened;
  }

  TempFolder folder_;
};

// Descriptors of this process that are unpacked data.
int OpenMemories() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry, error);
    if (!error && target.string().find("memfd:gaccd-data") != std::string::npos) ++count;
  }
  return count;
}

TEST_F(OpenDataTest, EveryRankHasSameBytes) {
  Job job = MakeJob(Source("a"));
  job.data.normalize.scale = 0.5;
  std::vector<std::int32_t> labels;
  const auto alone = ValueOrThrow(OpenTrainingData(job));
  const std::vector<float> features = AllFeatures(*alone.train, &labels);
  for (const int per_node : {1, 2, 5}) {  // 1: nothing to share
    for (const Opened& rank : Open(job, 5, per_node)) {
      ASSERT_TRUE(rank.status.ok()) << rank.status.message();
      EXPECT_EQ(rank.features, features);
      EXPECT_EQ(rank.labels, labels);
    }
  }
  EXPECT_EQ(OpenMemories(), 0);
}

// The others wait for it, wherever it is.
TEST_F(OpenDataTest, RankThatOpensForNodeSendsHeartbeats) {
  const Job job = MakeJob(Source("a"));
  const auto ticks_of = [&](std::vector<int> node_of) {
    std::vector<int> ticks(node_of.size());
    EXPECT_OK(RunThreadRanks(static_cast<int>(node_of.size()), {.comm = {}, .node_of = node_of},
                             [&](Communicator& inner) {
                               TickCounter comm(inner);
                               TrainingData data;
                               const Status opened = OpenSharedData(comm, job, {}, &data).status;
                               ticks[static_cast<std::size_t>(comm.rank())] = comm.ticks();
                               return opened;
                             }));
    return ticks;
  };
  EXPECT_THAT(ticks_of({0, 0, 1}), ElementsAre(Ge(1), _, Ge(1)));
  EXPECT_THAT(ticks_of({0, 1, 2}), Each(Ge(1)));
}

TEST_F(OpenDataTest, ErrorOfLeaderEndsAllRanks) {
  IdxSpec source = Source("broken");
  source.classes = 9;
  for (const Opened& rank : Open(MakeJob(source), 4, 2)) {
    EXPECT_THAT(rank.status, IsError(ErrorKind::kData,
                                     "rank 0 on node0: ", "expected labels in [0, 9), found 9"));
  }
}

TEST_F(OpenDataTest, EachRankHasOwnCopyWithoutSharedMemory) {
  const Job job = MakeJob(Source("own"));
  const auto shared = Open(job, 3, 0);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 100, .rlim_max = before.rlim_max};
  (void)signal(SIGXFSZ, SIG_IGN);  // of the text log, which an earlier test may have begun
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::vector<std::string> warnings;
  SetLogHook([&](const LogLine& line) { warnings.emplace_back(line.message); });
  const auto own = Open(job, 3, 0);
  SetLogHook({});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    ASSERT_TRUE(own[rank].status.ok()) << own[rank].status.message();
    EXPECT_EQ(own[rank].features, shared[rank].features);
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("RLIMIT_FSIZE is 100"));
}

TEST_F(OpenDataTest, DamagedRecordsAreSameOnAllRanks) {
  std::vector<float> features(std::size_t{kFileSamples} * kFileFeatures, 1.0F);
  features[5 * kFileFeatures] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> targets(kFileSamples, 2.0F);
  const auto write = [&](const std::string& name, std::uint32_t width,
                         const std::vector<float>& values) {
    const std::string shape = StrCat("(", kFileSamples, ", ", width, ")");
    return folder_.Write(
        name, NpyHeader(NpyDictionary("<f4", shape)) + Raw(std::span<const float>(values)));
  };
  const NpySpec source{.features = write("x.npy", kFileFeatures, features),
                       .targets = write("y.npy", 1, targets)};
  const Job job = MakeJob(source);
  const auto body = [&](Communicator& comm) {
    TrainingData data;
    const BadRecordRules rules{.policy = OnBadRecord::kSkip, .quota = 1};
    const Agreement opened = OpenSharedData(comm, job, rules, &data);
    EXPECT_TRUE(opened.status.ok()) << opened.status.message();
    EXPECT_EQ(data.train->bad_records().size(), 1U);
    EXPECT_EQ(data.train->bad_records()[0].sample, 5);
    return Status::Ok();
  };
  EXPECT_TRUE(RunThreadRanks(4, {}, body).ok());
}

}  // namespace
}  // namespace gaccd
