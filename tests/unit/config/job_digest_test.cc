// Jobs under flags, and the digest by which ranks see that they have the same.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "daemon/config/job_text.h"
#include "proto/field.pb.h"
#include "proto/job.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/config/job_text_util.h"

namespace gaccd {
namespace {

using tests::Error;
using tests::kFull;
using tests::kMinimal;
using tests::ParseOk;
using tests::With;

TEST(JobTextTest, LossScaleOfFp16) {
  const Job job = ParseOk(StrCat(kMinimal, "precision: FP16 loss_scale { init_scale: 1024 }"));
  EXPECT_EQ(job.precision, Precision::kFP16);
  EXPECT_EQ(job.loss_scale.init_scale, 1024);
  EXPECT_EQ(job.loss_scale.growth_interval, 2000);
  EXPECT_EQ(job.loss_scale.least_scale, 1);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  EXPECT_THAT(Error(StrCat(kMinimal, "loss_scale { init_scale: 4 least_scale: 8 }")),
              HasSubstr("loss_scale.init_scale: must be at least least_scale, 8, found 4"));
  EXPECT_THAT(Error(StrCat(kMinimal, "loss_scale { growth_interval: 0 }")),
              HasSubstr("loss_scale.growth_interval: must be at least 1, found 0"));
  EXPECT_THAT(
      Error(StrCat(kMinimal, "precision: FP16 device: CPU")),
      HasSubstr(
          "precision: only GPUs compute in fp16, expected f32, bf16 or f64-sums, found fp16"));
  EXPECT_THAT(
      Error(StrCat(kMinimal, "precision: F64_SUMS device: CUDA")),
      HasSubstr("precision: only CPUs sum in f64, expected f32, bf16 or fp16, found f64-sums, "
                "and device is cuda"));
}

TEST(JobOverlayTest, FlagsOverrideJob) {
  Flags flags;
  const Job same = *OverlayFlags(ParseOk(kFull), flags);
  EXPECT_EQ(JobText(same), JobText(ParseOk(kFull)));

  flags.job_fields = {{"batch.target", "77"},
                      {"batch.micro", "5"},
                      {"batch.rounding", "exact"},
                      {"batch.lr_rule", "none"},
                      {"batch.reference", "0"},
                      {"batch.last_cycle", "carry"},
                      {"epochs", "9"},
                      {"max_updates", "0"},
                      {"seed", "5"},
                      {"log_every", "1"},
                      {"device", "cpu"},
                      {"precision", "f32"},
                      {"tf32", "false"},
                      {"deterministic", "false"},
                      {"model.layer[1].linear.out", "7"},
                      {"optimizer.adamw.beta1", "0.25"}};
  const Job job = *OverlayFlags(ParseOk(kFull), flags);
  EXPECT_EQ(job.batch.target, 77);
  EXPECT_EQ(job.batch.micro, 5);
  EXPECT_EQ(job.batch.rounding, Rounding::kExact);
  EXPECT_EQ(job.batch.lr_rule, LrRule::kNone);
  EXPECT_EQ(job.batch.reference, 0);
  EXPECT_EQ(job.batch.last_cycle, LastCycle::kCarry);
  EXPECT_EQ(job.epochs, 9);
  EXPECT_EQ(job.max_updates, 0);
  EXPECT_EQ(job.seed, 5U);
  EXPECT_EQ(job.log_every, 1);
  EXPECT_EQ(job.device, Device::kCpu);
  EXPECT_EQ(job.precision, Precision::kF32);
  EXPECT_FALSE(job.tf32);
  EXPECT_FALSE(job.deterministic);

  EXPECT_EQ(std::get<LinearSpec>(job.model.layer[1].kind).out, 7);
  EXPECT_EQ(std::get<AdamWSpec>(job.optimizer.kind).beta1, 0.25);

  flags.job_fields.push_back({"epochs", "0"});
  EXPECT_THAT(OverlayFlags(ParseOk(kFull), flags), IsError(ErrorKind::kConfig, "epochs: 0"));
}

TEST(JobOverlayTest, EndMayBeAFlagAlone) {
  const Job job = ParseOk(With(kMinimal, "name: \"line\"", "name: \"line\" epochs: 0"));
  EXPECT_THAT(OverlayFlags(job, {}), IsError(ErrorKind::kConfig, "epochs: 0 means no end"));
  EXPECT_EQ(OverlayFlags(job, {.job_fields = {{"max_updates", "5"}}})->max_updates, 5);
}

TEST(JobOverlayTest, SetNamesUnknownFields) {
  const auto set = [](const std::string& path, const std::string& value) {
    const Flags flags{.job_fields = {{path, value, "--set " + path + "=" + value}}};
    return OverlayFlags(ParseOk(kFull), flags);
  };
  EXPECT_THAT(set("model.layer[4].name", "a"),
              IsError(ErrorKind::kUsage, "expected layer[0] to layer[3], found layer[4]"));
  EXPECT_THAT(set("optimizer.sgd.momentum", "0.5"),
              IsError(ErrorKind::kUsage, "--set optimizer.sgd.momentum=0.5: the job has adamw"));
  EXPECT_THAT(set("optimizer.group[0].freeze", "true"),
              IsError(ErrorKind::kUsage, "the job has no group"));
  EXPECT_THAT(set("model.layer[1].name", "relu"), IsError(ErrorKind::kConfig, "two layers"));
  EXPECT_EQ(std::get<StepDecaySpec>(set("schedule.step.gamma", "0.125")->schedule.shape).gamma,
            0.125);
}

TEST(JobOverlayTest, SetAcceptsListElements) {
  const std::string text = With(kMinimal, "layer { name: \"fc\" linear { in: 10 out: 1 } }",
                                "mlp { widths: 10 widths: 8 widths: 1 }");
  const auto set = [&](const std::string& index, const std::string& value) {
    const Flags flags{.job_fields = {{"model.mlp.widths[" + index + "]", value}}};
    return OverlayFlags(ParseOk(text), flags);
  };
  EXPECT_EQ(std::get<MlpSpec>(set("1", "64")->model.architecture).widths[1], 64);
  EXPECT_THAT(set("1", "0"), IsError(ErrorKind::kUsage, "must be at least 1"));
  EXPECT_THAT(set("3", "1"), IsError(ErrorKind::kUsage, "expected widths[0] to widths[2]"));
}

// What is wrong with a message whose list of numbers has this value; its other required fields
// are 1.
std::string ProblemOfList(const google::protobuf::FieldDescriptor& list, double value) {
  const google::protobuf::Descriptor& type = *list.containing_type();
  const std::unique_ptr<google::protobuf::Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  const auto& write = *message->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& other = *type.field(i);
    if (&other == &list || !FieldRule(other).required()) continue;
    if (other.is_repeated()) {
      write.AddInt64(message.get(), &other, 1);
    } else {
      EXPECT_OK(SetField(*message, other.name(), "1", ListElement::kMustExist));
    }
  }
  if (list.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
    write.AddDouble(message.get(), &list, value);
  } else {
    write.AddInt64(message.get(), &list, static_cast<std::int64_t>(value));
  }
  return CheckFields(*message).message();
}

TEST(JobTextTest, ChecksRangeOfEveryNumberList) {
  int ranges = 0;
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    const auto& field = *leaf.field;
    if (!field.is_repeated() || field.message_type() != nullptr) continue;
    const auto expect_refused = [&](double value) {
      EXPECT_THAT(ProblemOfList(field, value),
                  AllOf(StartsWith(field.name() + "[0]: must be "), HasSubstr(", found ")))
          << leaf.path;
      ++ranges;
    };
    const proto::Field& rule = FieldRule(field);
    if (rule.has_min()) expect_refused(rule.min() - 1);
    if (rule.has_above()) expect_refused(rule.above());
    if (rule.has_max()) expect_refused(rule.max() + 1);
    if (rule.has_below()) expect_refused(rule.below());
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) continue;
    expect_refused(std::nan(""));
  }
  EXPECT_GT(ranges, 30);
}

// Those enums that are not made from proto/.
template <typename E>
void ExpectNames(std::string_view path) {
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    if (leaf.path != path) continue;
    const auto& values = *leaf.field->enum_type();
    for (int i = 0; i < values.value_count(); ++i) {
      EXPECT_EQ(Name(static_cast<E>(i)), ToKebabCase(values.value(i)->name())) << path;
    }
  }
}

TEST(JobOverlayTest, StructDefaultsAndNamesEqualDescription) {
  EXPECT_EQ(JobText(Job{FromProto(proto::Job()), "", {}}), JobText(Job{}));
  ExpectNames<Rounding>("batch.rounding");
  ExpectNames<LrRule>("batch.lr_rule");
  EXPECT_EQ(Name(LastCycle::kCarry), "carry");
  EXPECT_EQ(Name(Device::kCuda), "cuda");
  EXPECT_EQ(Name(Precision::kBF16), "bf16");
}

TEST(JobOverlayTest, RefusesDuplicateClassesAndFieldsWithoutEffect) {
  const auto given = [](std::string_view data) {
    return OverlayFlags(ParseOk(With(kFull, "data {", StrCat("data { ", data, " "))), {});
  };
  std::string names;
  for (int i = 1; i < 10; ++i) names += StrCat("class_name: '", i, "' ");  // the first is left out
  EXPECT_THAT(given(names),
              IsError(ErrorKind::kConfig, "each of the 10 classes of data.train, found 9"));
  EXPECT_OK(given(names + "class_name: '0'").status());
  EXPECT_THAT(given(names + "class_name: '9'"), IsError(ErrorKind::kConfig, "found '9' twice"));
  EXPECT_THAT(given("mix_group: 8"), IsError(ErrorKind::kConfig, "needs mixup or cutmix, found 8"));
  EXPECT_OK(given("mix_group: 8 mixup { alpha: 1 }").status());
}

TEST(JobOverlayTest, PredictionNeedsNoTargets) {
  const std::string unlabelled = With(kFull, "classes: 10", "");
  const auto job = ValueOrThrow(ParseJobText(unlabelled, "job.txtpb", Verb::kPredict));
  EXPECT_TRUE(OverlayFlags(job, {.verb = Verb::kPredict}).ok());
  for (const Verb verb : {Verb::kTrain, Verb::kEval}) {
    const auto refused = IsError(ErrorKind::kConfig, "softmax_cross_entropy needs labels");
    EXPECT_THAT(ParseJobText(unlabelled, "job.txtpb", verb), refused);
    EXPECT_THAT(OverlayFlags(job, {.verb = verb}), refused);
  }
}

TEST(JobOverlayTest, ChecksImagesToPredictLikeTrainingImages) {
  const std::string text =
      With(With(kFull, "idx { images: \"train-images.gz\" labels: \"train-labels.gz\" }",
                "images { path: 'train' classes: 10 size: 28 }"),
           "npy { features: \"x.npy\" targets: \"y.npy\" classes: 10 }",
           "images { path: 'test' classes: 10 size: 28 }");
  const auto changed = [&](std::string_view from, std::string_view to) {
    return ParseJobText(With(text, from, to), "job.txtpb", Verb::kPredict);
  };
  EXPECT_OK(changed("seed", "seed").status());
  EXPECT_THAT(changed("'test'", "'test' horizontal_flip: 0.5"),
              IsError(ErrorKind::kConfig, "data.eval.images: expected no random operation"));
  EXPECT_THAT(changed("'train'", "'train' random_resized_crop { scale: 0.5 }"),
              IsError(ErrorKind::kConfig, "expected a least and a largest value, found 1 values"));
  EXPECT_THAT(
      ParseJobText(With(kFull, "mean: 0.5", "channel_mean: 0.5"), "job.txtpb", Verb::kPredict),
      IsError(ErrorKind::kConfig, "channel_mean and channel_std are for the source images only"));
}

// What only GPUs do is refused before anything runs; with device auto it is not known yet.
TEST(JobOverlayTest, RefusesTf32OnCpus) {
  const std::string tf32 = StrCat(kMinimal, "tf32: true");
  Flags cpu;
  cpu.job_fields = {{"device", "cpu"}};
  EXPECT_TRUE(OverlayFlags(ParseOk(tf32), Flags{}).ok());
  EXPECT_THAT(OverlayFlags(ParseOk(tf32), cpu), HasKind(ErrorKind::kConfig));
  EXPECT_EQ(Error(StrCat(tf32, " device: CPU")),
            "job.txtpb: tf32: only GPUs round to TF32, expected false, found true, and device is "
            "cpu");
  cpu.job_fields.push_back({"tf32", "false"});
  EXPECT_TRUE(OverlayFlags(ParseOk(tf32), cpu).ok()) << "the flag takes the request back";
  const std::string bf16 = StrCat(kMinimal, "precision: BF16 device: CPU");
  EXPECT_THAT(JobText(ParseOk(bf16)), HasSubstr("precision: BF16"));
}

TEST(JobOverlayTest, AllDevicesShardOptimizer) {
  const std::string sharded = StrCat(kMinimal, "shard: OPTIMIZER");
  for (const char* device : {"", " device: CPU", " device: CUDA"}) {
    EXPECT_EQ(ParseOk(StrCat(sharded, device)).shard, Sharding::kOptimizer) << device;
  }
}

TEST(JobOverlayTest, MakesPlanRequest) {
  const PlanRequest request = *ToPlanRequest(ParseOk(kFull).batch, 4, 2);
  EXPECT_EQ(request.nodes, 4);
  EXPECT_EQ(request.gpus_per_node, 2);
  EXPECT_EQ(request.micro_batch, 32);
  EXPECT_EQ(request.target_batch, 1000);
  EXPECT_EQ(request.rounding, Rounding::kNearest);
  EXPECT_EQ(request.lr_rule, LrRule::kSqrt);
  EXPECT_EQ(request.reference_batch, 256);
  EXPECT_THAT(ToPlanRequest(ParseOk(kMinimal).batch, 4, 2), HasKind(ErrorKind::kUsage));
}

TEST(JobDigestTest, DigestsDistinguishJobsAndFlags) {
  // Published values of 128-bit FNV-1a.
  EXPECT_EQ(Digest(""), "6c62272e07bb014262b821756295c58d");
  EXPECT_EQ(Digest("a"), "d228cb696f1a8caf78912b704e4a8964");

  const Flags flags;
  const std::string digest = JobDigest(ParseOk(kFull), flags);
  EXPECT_EQ(digest.size(), 32U);
  EXPECT_EQ(JobDigest(ParseOk(StrCat("# a comment\n", kFull)), flags), digest);
  EXPECT_EQ(JobDigest(ParseOk(JobText(ParseOk(kFull))), flags), digest);
  EXPECT_NE(JobDigest(ParseOk(With(kFull, "lr: 0.001", "lr: 0.0010000000000000002")), flags),
            digest);
}

TEST(JobDigestTest, DependsOnEverySharedFlag) {
  const FlagsSpec others[] = {{.bound = 5},
                              {.init_weights = "a"},
                              {.new_weights = "a"},
                              {.unused_weights = "a"},
                              {.weights = "a"},
                              {.what = Predicted::kClasses},
                              {.allow_gpu_sharing = true},
                              {.allow_emulation = true},
                              {.time_algorithms = true},
                              {.speed = "n1:0.5"},
                              {.rebalance = Rebalance::kAuto},
                              {.resume = "never"},
                              {.save_every_updates = 1},
                              {.stop_signals = "TERM"},
                              {.term_budget = 1},
                              {.on_nonfinite = OnNonfinite::kSkipUpdate},
                              {.on_bad_record = OnBadRecord::kSkip},
                              {.bad_record_quota = 1},
                              {.digest_every = 1}};
  const Job job = ParseOk(kFull);
  const std::string digest = JobDigest(job, Flags{});
  int number = 0;
  for (const FlagsSpec& other : others) EXPECT_NE(JobDigest(job, {other}), digest) << number++;
}

struct FieldChange {
  std::string_view text;
  std::string_view from;
  std::string_view to;
};

constexpr FieldChange kChanges[] = {
    {kFull, "\"mnist\"", "\"other\""},
    {kFull, "name: \"flatten\"", "name: \"flat\""},
    {kFull, "relu {}", "flatten {}"},
    {kFull, "in: 784", "in: 785"},
    {kFull, "out: 512", "out: 513"},
    {kFull, "bias: false", "bias: true"},
    {kFull, "train-images.gz", "a"},
    {kFull, "train-labels.gz", "a"},
    {kFull, "x.npy", "a"},
    {kFull, "y.npy", "a"},
    {kFull, "scale: 0.00392156862745098", "scale: 1"},
    {kFull, "mean: 0.5", "mean: 1"},
    {kFull, "std: 0.25", "std: 1"},
    {kFull, "shuffle: false", "shuffle: true"},
    {kFull, "target: 1000", "target: 1001"},
    {kFull, "micro: 32", "micro: 33"},
    {kFull, "NEAREST", "FLOOR"},
    {kFull, "DROP", "CARRY"},
    {kFull, "SQRT", "LINEAR"},
    {kFull, "reference: 256", "reference: 0"},
    {kFull, "lr: 0.001", "lr: 0.002"},
    {kFull, "beta1: 0.8", "beta1: 0.9"},
    {kFull, "beta2: 0.95", "beta2: 0.9"},
    {kFull, "epsilon: 1e-6", "epsilon: 1e-7"},
    {kFull, "weight_decay: 0.1", "weight_decay: 0"},
    {kFull, "warmup_updates: 5", "warmup_updates: 6"},
    {kFull, "every_updates: 100", "every_updates: 101"},
    {kFull, "gamma: 0.5", "gamma: 0.25"},
    {kFull, "step { every_updates: 100 gamma: 0.5 }", ""},
    {kFull, "step { every_updates: 100 gamma: 0.5 }", "cosine {}"},
    {kFull, "step { every_updates: 100 gamma: 0.5 }", "cosine { final_ratio: 0.1 }"},
    {kFull, "step { every_updates: 100 gamma: 0.5 }", "linear { final_ratio: 0.1 }"},
    {kFull, "step { every_updates: 100 gamma: 0.5 }", "linear { hold_ratio: 0.5 }"},
    {kFull, "clip_norm: 1.5", "clip_norm: 0"},
    {kFull, "epochs: 3", "epochs: 4"},
    {kFull, "max_updates: 400", "max_updates: 401"},
    {kFull, "reference: 256", "reference: 256 bits: ANY_SPLIT"},
    {kFull, "seed: 18446744073709551615", "seed: 0"},
    {kFull, "log_every: 7", "log_every: 8"},
    {kFull, "device: CUDA", "device: AUTO"},
    {kFull, "precision: BF16", "precision: F32"},
    {kMinimal, "optimizer {", "precision: F64_SUMS optimizer {"},
    {kFull, "tf32: true", "tf32: false"},
    {kFull, "deterministic: true", "deterministic: false"},
    {kMinimal, "samples: 4096", "samples: 4095"},
    {kMinimal, "samples: 4096", "samples: 4096 features: 9"},
    {kMinimal, "samples: 4096", "samples: 4096 outputs: 2"},
    {kMinimal, "samples: 4096", "samples: 4096 noise: 0.2"},
    {kMinimal, "samples: 4096", "samples: 4096 seed: 2"},
    {kMinimal, "sgd {}", "sgd { momentum: 0.5 }"},
    {kMinimal, "sgd {}", "sgd { weight_decay: 1 }"},
};

// The changed job has another digest, and the resolved text keeps the change.
void ExpectCounts(const std::string& before, const std::string& after) {
  EXPECT_NE(JobDigest(ParseOk(after), Flags{}), JobDigest(ParseOk(before), Flags{})) << after;
  const std::string resolved = JobText(ParseOk(after));
  EXPECT_EQ(JobText(ParseOk(resolved)), resolved) << after;
}

TEST(JobDigestTest, DependsOnEveryField) {
  for (const FieldChange& change : kChanges) {
    ExpectCounts(std::string(change.text), With(change.text, change.from, change.to));
  }
  const std::string momentum = With(kMinimal, "sgd {}", "sgd { momentum: 0.5 }");
  ExpectCounts(momentum, With(momentum, "0.5", "0.5 nesterov: true"));
}

}  // namespace
}  // namespace gaccd
