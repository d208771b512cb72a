// Whole trainings with recompute: BLOCKS against the same without: the same bits of every weight
// and running statistic on every rank, and less memory; on 1 to 3 ranks with ragged micro-batches.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/onednn.h"
#include "tests/support/rank_training.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// Samples of any spec; values are functions of the number of the sample.
class HashedSamples final : public Dataset {
 public:
  HashedSamples(std::int64_t size, const SampleSpec& spec) : size_(size), spec_(spec) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (std::size_t t = 0; t < spec_.tensors.size(); ++t) {
      const TensorSpec& tensor = spec_.tensors[t];
      const std::int64_t most = tensor.name == "tokens" ? spec_.vocabulary : spec_.classes;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        for (std::int64_t e = 0; e < tensor.elements(); ++e) {
          const auto at = static_cast<std::int64_t>(i) * tensor.elements() + e;
          const std::int64_t hash = (indices[i] * 7919 + e * 104729 + 17) * (e + 3) % 65521;
          if (tensor.dtype == DType::kF32) {
            out.tensor<float>(t)[at] = static_cast<float>(hash % 2048) / 1024 - 1;
          } else {
            out.tensor<std::int32_t>(t)[at] = static_cast<std::int32_t>(hash % most);
          }
        }
      }
    }
  }

 private:
  std::int64_t size_;
  SampleSpec spec_;
};

struct RecomputeCase {
  const char* name;
  ModelSpec model;
  Precision precision = Precision::kF32;
};
void PrintTo(const RecomputeCase& test, std::ostream* out) { *out << test.name; }

ResnetSpec SmallResnet(BatchStatistics stats) {
  return {.blocks = {2, 1},
          .width = 8,
          .classes = 3,
          .stem = ResnetStem::kSmall,
          .stats = stats,
          .ghost_size = 5};
}

GptSpec SmallGpt() {
  return {.vocabulary = 11, .context = 6, .layers = 3, .heads = 2, .width = 8, .dropout = 0.2};
}

std::vector<LayerSpec> Mlp() {
  std::vector<LayerSpec> layers;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    layers.push_back({StrCat("fc_", name), LinearSpec{12, 12, true}});
    layers.push_back({StrCat("tanh_", name), TanhSpec{}});
    layers.push_back({StrCat("drop_", name), DropoutSpec{0.3}});
  }
  layers.push_back({"fc", LinearSpec{12, 4, true}});
  return layers;
}

std::vector<LayerSpec> Images() {
  const auto conv = [](std::int64_t in) {
    return Conv2dSpec{.in_channels = in, .out_channels = 6, .kernel_size = {3}, .padding = {1}};
  };
  return {{"images", UnflattenSpec{2, 4, 4}},
          {"conv1", conv(2)},
          {"bn1", BatchNormSpec{.num_features = 6}},
          {"relu1", ReluSpec{}},
          {"conv2", conv(6)},
          {"bn2", BatchNormSpec{.num_features = 6, .stats = BatchStatistics::kMicro}},
          {"silu2", SiluSpec{}},
          {"pool", AdaptiveAvgPool2dSpec{.output_size = {1}}},
          {"flatten", FlattenSpec{}},
          {"fc", LinearSpec{6, 3, true}}};
}

std::vector<RecomputeCase> Cases() {
  const SoftmaxCrossEntropySpec loss;
  const BertSpec bert{.vocabulary = 13,
                      .context = 5,
                      .layers = 2,
                      .heads = 2,
                      .width = 8,
                      .classes = 3,
                      .dropout = 0.2};
  const VitSpec vit{.image_size = 8,
                    .patch_size = 4,
                    .width = 8,
                    .depth = 3,
                    .heads = 2,
                    .classes = 5,
                    .dropout = 0.2};
  const std::vector<LayerSpec> tower = {{"fc", LinearSpec{12, 12, true}},
                                        {"tanh", TanhSpec{}},
                                        {"fc2", LinearSpec{12, 12, true}},
                                        {"gelu", GeluSpec{}},
                                        {"fc3", LinearSpec{12, 12, true}}};
  const DualEncoderSpec pair{.a = {"features", tower}, .b = {"targets", tower}, .width = 6};
  const GraphSpec graph{.path = GACCD_GOLDEN_DIR "/graphs/transformer"};
  const auto resnet = [&](const char* name, BatchStatistics stats) {
    return RecomputeCase{name, {.loss = loss, .architecture = SmallResnet(stats)}};
  };
  return {{"gpt", {.loss = loss, .architecture = SmallGpt()}},
          {"gpt_bf16", {.loss = loss, .architecture = SmallGpt()}, Precision::kBF16},
          {"bert", {.loss = loss, .architecture = bert}},
          {"vit", {.loss = loss, .architecture = vit}},
          {"vit_bf16", {.loss = loss, .architecture = vit}, Precision::kBF16},
          resnet("resnet_window", BatchStatistics::kWindow),
          resnet("resnet_ghost", BatchStatistics::kGhost),
          resnet("resnet_micro", BatchStatistics::kMicro),
          resnet("resnet_frozen", BatchStatistics::kFrozen),
          {"mlp", {.layer = Mlp(), .loss = loss}},
          {"images", {.layer = Images(), .loss = loss}},
          {"contrastive", {.loss = ContrastiveSpec{}, .architecture = pair}},
          {"graph", {.loss = loss, .architecture = graph}}};
}

Trained TrainWith(const RecomputeCase& test, const SampleSpec& spec, int ranks, std::int64_t micro,
                  Recompute recompute) {
  Job job;
  job.name = test.name;
  job.model = test.model;
  job.data.train = SyntheticSpec{.samples = 1};
  job.precision = test.precision;
  job.batch.target = 13;
  job.batch.micro = micro;
  job.batch.recompute = recompute;
  job.optimizer = {.lr = 0.02, .kind = SgdSpec{.momentum = 0.9}};
  job.max_updates = 3;  // of 13, 13 and 5 samples
  const auto data = [&spec](int) { return std::make_unique<HashedSamples>(31, spec); };
  Trained trained = Train(job, {.ranks = ranks, .data = data});
  for (const Status& status : trained.status) EXPECT_OK(status);
  return trained;
}

class RecomputeTrainingTest : public ::testing::TestWithParam<RecomputeCase> {};

TEST_P(RecomputeTrainingTest, IsBitIdenticalInLessMemory) {
  const RecomputeCase& test = GetParam();
  if (test.precision == Precision::kBF16 && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  const SampleSpec spec = ValueOrThrow(Model::MakeWithoutData(test.model)).sample();
  for (const auto& [ranks, micro] : {std::pair{1, 13}, {1, 4}, {2, 3}, {3, 2}}) {
    SCOPED_TRACE(StrCat(ranks, " ranks, micro-batch ", micro));
    const Trained all_kept = TrainWith(test, spec, ranks, micro, Recompute::kNone);
    const Trained blocks = TrainWith(test, spec, ranks, micro, Recompute::kBlocks);
    EXPECT_EQ(blocks.weights, all_kept.weights);
    for (std::size_t rank = 0; rank < blocks.memory.size(); ++rank) {
      EXPECT_LT(blocks.memory[rank].planned - blocks.memory[rank].process,
                all_kept.memory[rank].planned - all_kept.memory[rank].process);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecomputeTrainingTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

// 3 ranks stop inside an update and continue in the other way: what is saved does not know it.
class RecomputeResumeTest : public ResumeTest {};

TEST_F(RecomputeResumeTest, ResumesWithOtherRecomputeSetting) {
  Job job = SmallJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  job.batch.recompute = Recompute::kBlocks;
  EXPECT_THAT(Train(job, 3, 100, "never", {4, 2}),
              IsError(ErrorKind::kTempFail, "inside update 4 after micro-step 2"));
  job.batch.recompute = std::nullopt;
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.first, 3);
  EXPECT_EQ(resumed.weights, plain.weights);
}

// One product has no place to cut.
TEST(RecomputeRefusalTest, RefusesModelWithoutBlocks) {
  Job job;
  job.name = "one";
  job.model = {.layer = {{"fc", LinearSpec{10, 1, true}}}, .loss = MeanSquaredErrorSpec{}};
  job.data.train = SyntheticSpec{.samples = 20};
  job.batch = {.target = 8, .recompute = Recompute::kBlocks};
  job.optimizer = {.lr = 0.02, .kind = SgdSpec{}};
  EXPECT_THAT(Train(job, {.ranks = 1}).status[0],
              IsError(ErrorKind::kConfig, "recompute: BLOCKS", "found no such place"));
}

}  // namespace
}  // namespace gaccd::tests
