#include "daemon/config/job_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/config/job_text_util.h"

namespace gaccd {
namespace {

using tests::Error;
using tests::kFull;
using tests::kMinimal;
using tests::ParseOk;
using tests::With;

TEST(JobTextTest, DefaultsOfAMinimalJob) {
  const Job job = ParseOk(kMinimal);
  EXPECT_EQ(job.name, "line");
  ASSERT_EQ(job.model.layer.size(), 1U);
  EXPECT_TRUE(std::get<LinearSpec>(job.model.layer[0].kind).bias);
  EXPECT_EQ(GetLossKind(job.model.loss), LossKind::kMeanSquaredError);
  const auto& made = std::get<SyntheticSpec>(job.data.train);
  EXPECT_EQ(made.samples, 4096);
  EXPECT_EQ(made.features, 10);
  EXPECT_EQ(made.noise, 0.1);
  EXPECT_FALSE(job.data.eval.has_value());
  EXPECT_TRUE(job.data.shuffle);
  EXPECT_EQ(job.data.normalize.std, 1);
  EXPECT_EQ(job.batch.target, std::nullopt);
  EXPECT_EQ(job.batch.micro, 10);
  EXPECT_EQ(job.batch.rounding, Rounding::kExact);
  EXPECT_EQ(job.batch.last_cycle, LastCycle::kUpdate);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(job.schedule.shape));
  EXPECT_EQ(job.epochs, 1);
  EXPECT_EQ(job.log_every, 100);
  EXPECT_EQ(job.seed, 1U);
  EXPECT_EQ(job.device, Device::kAuto);
  EXPECT_EQ(job.precision, Precision::kF32);
  EXPECT_FALSE(job.tf32);
  EXPECT_FALSE(job.deterministic);
}

TEST(JobTextTest, ParsesTokenSources) {
  const auto parse = [](const std::string& source, const std::string& loss) {
    std::string text(kMinimal);
    text.replace(text.find("synthetic"), std::string("synthetic { samples: 4096 }").size(), source);
    text.replace(text.find("mean_squared_error"), std::string("mean_squared_error").size(), loss);
    return text;
  };
  const Job tokens =
      ParseOk(parse("tokens { tokens: 't.npy' labels: 'l.npy' lengths: 'n.npy' vocabulary: 99 }",
                    "softmax_cross_entropy"));
  const auto& rows = std::get<TokensSpec>(tokens.data.train);
  EXPECT_EQ(rows.tokens, "t.npy");
  EXPECT_EQ(rows.labels, "l.npy");
  EXPECT_EQ(rows.lengths, "n.npy");
  EXPECT_EQ(rows.segments, std::nullopt);
  EXPECT_EQ(rows.vocabulary, 99);
  EXPECT_EQ(rows.segment_types, 2);
  const Job stream = ParseOk(
      parse("stream { path: 'text.npy' length: 64 vocabulary: 7 }", "softmax_cross_entropy"));
  EXPECT_EQ(std::get<StreamSpec>(stream.data.train).path, "text.npy");
  EXPECT_EQ(std::get<StreamSpec>(stream.data.train).length, 64);
  EXPECT_EQ(std::get<StreamSpec>(stream.data.train).vocabulary, 7);
  const std::string other = parse(
      "stream { path: 'a' length: 6 vocabulary: 7 } } eval { "
      "stream { path: 'b' length: 6 vocabulary: 8 }",
      "softmax_cross_entropy");
  EXPECT_THAT(ParseJobText(other, "job"),
              HasMessage(HasSubstr("must have the vocabulary of data.train, expected 7, found 8")));
}

TEST(JobTextTest, MaskedTokensAreLabels) {
  const auto text = [](const std::string& rest) {
    std::string job(kMinimal);
    job.replace(job.find("synthetic"), std::string("synthetic { samples: 4096 }").size(),
                "tokens { tokens: 't.npy' vocabulary: 99 " + rest + " }");
    job.replace(job.find("mean_squared_error"), std::string("mean_squared_error").size(),
                "softmax_cross_entropy");
    return job;
  };
  const Job job = ParseOk(text("masked { mask_token: 4 special_token: [0, 98] }"));
  const auto& masked = std::get<TokensSpec>(job.data.train).masked;
  ASSERT_TRUE(masked);
  EXPECT_EQ(masked->mask_token, 4);
  EXPECT_EQ(masked->special_token, (std::vector<std::int64_t>{0, 98}));
  EXPECT_EQ(masked->probability, 0.15);
  const auto refused = [&](const std::string& rest) { return Error(text(rest)); };
  EXPECT_THAT(refused(""), AllOf(HasSubstr("softmax_cross_entropy needs labels"),
                                 Not(HasSubstr("give its classes"))));
  EXPECT_THAT(refused("masked {}"), HasSubstr("masked.mask_token: is required"));
  EXPECT_THAT(
      refused("masked { mask_token: 99 }"),
      HasSubstr("data.train.tokens.masked.mask_token: expected a token in [0, 99), found 99"));
  EXPECT_THAT(refused("masked { mask_token: 4 special_token: [0, 100] }"),
              HasSubstr("masked.special_token: expected a token in [0, 99), found 100"));
  EXPECT_THAT(refused("masked { mask_token: 4 probability: 0 }"), HasSubstr("masked.probability"));
  EXPECT_THAT(refused("labels: 'l.npy' masked { mask_token: 4 }"), HasSubstr("tokens.labels: "));
  EXPECT_THAT(refused("classes: 3 masked { mask_token: 4 }"), HasSubstr("tokens.classes"));
  EXPECT_THAT(refused("ignored_label: 7 masked { mask_token: 4 }"), HasSubstr("found 7"));
}

TEST(JobTextTest, ParsesEveryField) {
  const Job job = ParseOk(kFull);
  ASSERT_EQ(job.model.layer.size(), 4U);
  EXPECT_TRUE(std::holds_alternative<FlattenSpec>(job.model.layer[0].kind));
  const auto& linear = std::get<LinearSpec>(job.model.layer[1].kind);
  EXPECT_EQ(linear.in, 784);
  EXPECT_EQ(linear.out, 512);
  EXPECT_FALSE(linear.bias);
  EXPECT_TRUE(std::holds_alternative<ReluSpec>(job.model.layer[2].kind));
  EXPECT_EQ(GetLossKind(job.model.loss), LossKind::kSoftmaxCrossEntropy);
  EXPECT_EQ(std::get<IdxSpec>(job.data.train).classes, 10);
  EXPECT_EQ(std::get<NpySpec>(*job.data.eval).features, "x.npy");
  EXPECT_EQ(job.data.normalize.mean, 0.5);
  EXPECT_FALSE(job.data.shuffle);
  EXPECT_EQ(job.batch.target, 1000);
  EXPECT_EQ(job.batch.rounding, Rounding::kNearest);
  EXPECT_EQ(job.batch.last_cycle, LastCycle::kDrop);
  EXPECT_EQ(job.batch.lr_rule, LrRule::kSqrt);
  EXPECT_EQ(job.batch.reference, 256);
  const auto& adamw = std::get<AdamWSpec>(job.optimizer.kind);
  EXPECT_EQ(adamw.beta1, 0.8);
  EXPECT_EQ(adamw.epsilon, 1e-6);
  EXPECT_EQ(job.schedule.warmup_updates, 5);
  EXPECT_EQ(std::get<StepDecaySpec>(job.schedule.shape).gamma, 0.5);
  EXPECT_EQ(job.clip_norm, 1.5);
  EXPECT_EQ(job.max_updates, 400);
  EXPECT_EQ(job.seed, 18446744073709551615U);
  EXPECT_EQ(job.log_every, 7);
  EXPECT_EQ(job.device, Device::kCuda);
  EXPECT_EQ(job.precision, Precision::kBF16);
  EXPECT_TRUE(job.tf32);
  EXPECT_TRUE(job.deterministic);
}

TEST(JobTextTest, OptimizerGroupsRoundTrip) {
  const std::string text =
      With(kMinimal, "sgd {}",
           "sgd {} group { match: '*.bias' weight_decay: 0 } group { match: 'fc*' lr_factor: 0.5 } "
           "group { match: 'fc1.*' freeze: true }");
  for (const Job& job : {ParseOk(text), ParseOk(JobText(ParseOk(text)))}) {
    ASSERT_EQ(job.optimizer.group.size(), 3u);
    EXPECT_EQ(job.optimizer.group[0].match, "*.bias");
    EXPECT_EQ(job.optimizer.group[0].weight_decay, 0.0);
    EXPECT_EQ(job.optimizer.group[0].lr_factor, std::nullopt);
    EXPECT_EQ(job.optimizer.group[1].weight_decay, std::nullopt);
    EXPECT_EQ(job.optimizer.group[1].lr_factor, 0.5);
    EXPECT_EQ(job.optimizer.group[1].freeze, std::nullopt);
    EXPECT_EQ(job.optimizer.group[2].freeze, true);
  }
}

TEST(JobTextTest, ResolvedTextRoundTrips) {
  for (const std::string_view text : {kMinimal, kFull}) {
    const std::string resolved = JobText(ParseOk(text));
    EXPECT_THAT(resolved, StartsWith("# proto-file: proto/job.proto\n"
                                     "# proto-message: gaccd.proto.Job\n\nname: "));
    EXPECT_EQ(JobText(ParseOk(resolved)), resolved);
  }
  EXPECT_THAT(JobText(ParseOk(kMinimal)), HasSubstr("log_every: 100")) << "defaults are written";
  const std::string cosine =
      StrCat(kMinimal, "schedule { cosine { final_ratio: 0.30000000000000004 } }");
  EXPECT_EQ(std::get<CosineSpec>(ParseOk(JobText(ParseOk(cosine))).schedule.shape).final_ratio,
            0.30000000000000004);
}

TEST(JobTextTest, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_THAT(Error("name: \"a\"\nmodel { layer {{ } }"), StartsWith("job.txtpb:2:16: "));
  EXPECT_THAT(Error("name \"a"), StartsWith("job.txtpb:1:"));
  EXPECT_THAT(
      Error("name: \"a\"\nepoch: 3"),
      AllOf(
          StartsWith("job.txtpb:2:6: unknown field 'epoch' (did you mean epochs?); Job has name, "),
          HasSubstr(", deterministic")));
  EXPECT_THAT(Error(With(kMinimal, "in: 10", "in: ten")), StartsWith("job.txtpb:2:"));
  EXPECT_THAT(Error(With(kMinimal, "in: 10", "in: 9223372036854775808")),
              AllOf(StartsWith("job.txtpb:2:"), HasSubstr("out of range")));
  EXPECT_THAT(Error("epochs: 1\nepochs: 2"),
              AllOf(StartsWith("job.txtpb:2:"), HasSubstr("specified multiple times")));
  EXPECT_THAT(Error(StrCat(kMinimal, "batch { rounding: UP }")), HasSubstr("UP"));
  EXPECT_THAT(Error(With(kMinimal, "sgd {}", "sgd {} adamw {}")), StartsWith("job.txtpb:4:"));
}

TEST(JobTextTest, NamesMissingQuotesAndBraces) {
  EXPECT_THAT(Error("name: clinic"), HasSubstr("in quotes, \"clinic\""));
  EXPECT_THAT(Error("name: \"}\"  # {\nmodel {\n  layer {\n}\n"),
              HasSubstr("the { of line 2 is not closed"));
  EXPECT_THAT(Error(With(kMinimal, "in: 10 out: 1 } }", "in: 10 out: 1 }")),
              AllOf(StartsWith("job.txtpb:2:"), HasSubstr("Model has it"), HasSubstr("missing")));
  EXPECT_THAT(Error("epochs: }"), Not(HasSubstr("not closed")));
}

TEST(JobTextTest, NamesWhatIsExpectedInPlaceOfWhatIsFound) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"precision: bf16", "precision: expected one of F32, BF16, FP16, F64_SUMS, found bf16"},
      {"batch { last_cycle: drop }", "last_cycle: expected one of UPDATE, CARRY, DROP, found drop"},
      {"tf32: yes", "tf32: expected true or false, found yes"},
      {"optimizer { sgd {} adamw {} }", "expected one of sgd and adamw, found both"},
      {"metric { accuracy }", "expected {, found }; a group has braces, also an empty one"},
      {"epochs: \"3\"", "expected a whole number, found \"3\"; numbers have no quotes"},
      {"epochs: 1.5", "expected a whole number, found 1.5"},
      {"epochs:", "expected a whole number, found the end of the text"},
      {"clip_norm: big", "expected a number, found big"},
      {"clip_norm: 0,1", "expected the name of a field, found 1"},
      {"\"epochs\": 1", "found \"epochs\"; names of fields have no quotes"},
      {"name: \u201ct\u201d", "expected ASCII outside of texts; the quotes of a text are"}};
  for (const auto& [text, message] : kCases) {
    EXPECT_THAT(Error(text), HasSubstr(message)) << text;
  }
}

TEST(JobTextTest, BoundsSizeAndDepth) {
  EXPECT_THAT(Error(std::string(kMaxTextBytes + 1, '#')),
              HasSubstr("at most 1048576 bytes, found 1048577"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "model{";
  EXPECT_THAT(Error(deep), StartsWith("job.txtpb:1:"));
}

TEST(JobTextTest, ArchitecturesInsteadOfLayers) {
  const auto with = [](const std::string& model) {
    return With(kMinimal, "layer { name: \"fc\" linear { in: 10 out: 1 } }", model);
  };
  Job job = ParseOk(with("gpt { layers: 2 heads: 2 width: 64 }"));
  const auto& gpt = std::get<GptSpec>(job.model.architecture);
  EXPECT_EQ(gpt.layers, 2);
  EXPECT_EQ(gpt.context, 1024);
  EXPECT_EQ(gpt.epsilon, 1e-5);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));

  job = ParseOk(with("mlp { widths: [10, 7, 1] }"));
  EXPECT_THAT(std::get<MlpSpec>(job.model.architecture).widths, ::testing::ElementsAre(10, 7, 1));
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));

  job = ParseOk(with("bert { classes: 3 }"));
  EXPECT_EQ(std::get<BertSpec>(job.model.architecture).classes, 3);

  job = ParseOk(with(R"(
    layer { name: "table" embedding { rows: 9 width: 4 } }
    layer { name: "norm" layer_norm { width: 4 } }
    layer { name: "act" gelu { tanh: true } })"));
  EXPECT_EQ(std::get<EmbeddingSpec>(job.model.layer[0].kind).rows, 9);
  EXPECT_EQ(std::get<LayerNormSpec>(job.model.layer[1].kind).epsilon, 1e-5);
  EXPECT_TRUE(std::get<GeluSpec>(job.model.layer[2].kind).tanh);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));

  EXPECT_THAT(Error(with("")), HasSubstr("model.layer: is required, at least one, or mlp, gpt"));
  EXPECT_THAT(Error(With(kMinimal, "layer {", "mlp { widths: [1, 1] } layer {")),
              HasSubstr("has layers and an architecture"));
  EXPECT_THAT(Error(with("gpt { heads: 5 width: 64 }")),
              HasSubstr("model.gpt.heads: must divide the width 64, found 5"));
  EXPECT_THAT(Error(with("vit { image_size: 30 patch_size: 4 }")),
              HasSubstr("model.vit.patch_size: must divide the image_size 30, found 4"));
  EXPECT_THAT(Error(with("vit { width: 64 }")),
              HasSubstr("model.vit.heads: must divide the width 64, found 12"));
  EXPECT_THAT(Error(with("vit { width: 24 mlp_ratio: 0.03 }")),
              HasSubstr("model.vit.mlp_ratio: expected at least 1 / width = 1 / 24, found 0.03"));
  EXPECT_THAT(Error(with("mlp { widths: [10, 0, 1] }")),
              HasSubstr("model.mlp.widths[1]: must be at least 1, found 0"));
  EXPECT_THAT(Error(with("mlp { widths: 10 }")), HasSubstr("expected at least 2, found 1"));
}

TEST(JobTextTest, RefusesFieldsWithoutEffect) {
  const auto with = [](const std::string& model) {
    return With(kMinimal, "layer { name: \"fc\" linear { in: 10 out: 1 } }", model);
  };
  for (const char* right :
       {"resnet {}", "resnet { depth: 50 block: BOTTLENECK }", "resnet { groups: 32 }",
        "resnet { depth: 34 stats: GHOST ghost_size: 8 }",
        "resnet { blocks: [1, 1] block: BOTTLENECK stats: FROZEN }",
        "graph { path: 'g' stats: GHOST ghost_size: 8 }", "graph { path: 'g' stats: MICRO }",
        "layer { name: 'n' batch_norm { num_features: 4 stats: GHOST ghost_size: 8 } }"}) {
    const Job job = ParseOk(with(right));
    EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job)) << "with all defaults: " << right;
  }
  EXPECT_THAT(Error(with("resnet { block: BOTTLENECK }")),
              HasSubstr("model.resnet.block: bottleneck needs blocks or depth 50, found depth 18"));
  EXPECT_THAT(Error(with("resnet { depth: 50 blocks: [2, 2, 2, 2] }")),
              HasSubstr("expected depth or blocks, found depth 50 and blocks of 4 stages"));
  EXPECT_THAT(Error(with("resnet { depth: 20 }")), HasSubstr("expected 18, 34 or 50"));
  EXPECT_THAT(Error(with("resnet { groups: 32 stats: FROZEN }")),
              HasSubstr("model.resnet.stats: frozen needs batch norms, groups 0, found groups 32"));
  const std::string ghost = ".ghost_size: needs stats ghost, found ghost_size 8 and stats window";
  EXPECT_THAT(Error(with("resnet { ghost_size: 8 }")), HasSubstr("model.resnet" + ghost));
  EXPECT_THAT(Error(with("graph { path: 'g' ghost_size: 8 }")), HasSubstr("model.graph" + ghost));
  EXPECT_THAT(Error(with("layer { name: 'n' batch_norm { num_features: 4 ghost_size: 8 } }")),
              HasSubstr("model.layer[0].batch_norm" + ghost));
}

TEST(JobTextTest, RefusesNoiseScaleInPipeline) {
  EXPECT_EQ(ParseOk(StrCat(kMinimal, "noise_scale_every: 4")).noise_scale_every, 4);
  EXPECT_THAT(Error(StrCat(kMinimal, "noise_scale_every: 4 pipeline { stages: 2 }")),
              HasSubstr("noise_scale_every: is not supported in a pipeline"));
}

TEST(JobTextTest, RefusesBlocksForOtherNumberOfStages) {
  EXPECT_EQ(ParseOk(StrCat(kMinimal, "pipeline { stages: 2 blocks: [1, 2] }")).pipeline.stages, 2);
  EXPECT_THAT(Error(StrCat(kMinimal, "pipeline { stages: 3 blocks: [1, 2] }")),
              HasSubstr("one number for each stage, with stages 3, found 2"));
  EXPECT_THAT(Error(StrCat(kMinimal, "pipeline { blocks: [1, 2] }")),
              HasSubstr("one number for each stage, with stages 1, found 2"));
  const Job divided = ParseOk(StrCat(kMinimal, "pipeline { stages: 2 blocks: [1, 2] }"));
  const auto undivided =
      OverlayFlags(divided, {.job_fields = {{"pipeline.stages", "1", "--pipeline=1"}}});
  ASSERT_TRUE(undivided.ok()) << undivided.status().message();
  EXPECT_TRUE(undivided->pipeline.blocks.empty());
}

TEST(JobTextTest, LossesThatAreOutputs) {
  constexpr std::string_view kOwn = R"(name: "own"
model { graph { path: "own" } loss { output {} } }
data { train { synthetic { samples: 40 } } eval { synthetic { samples: 4 } } }
optimizer { lr: 0.1 sgd {} }
)";
  const Job job = ParseOk(std::string(kOwn));
  EXPECT_EQ(GetLossKind(job.model.loss), LossKind::kOutput);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  EXPECT_THAT(Error(With(kMinimal, "mean_squared_error", "output")),
              HasSubstr("model.loss: output needs a graph"));
  EXPECT_THAT(Error(StrCat(kOwn, "metric { mae {} }")),
              HasSubstr("metric[0]: mae needs a prediction"));
}

TEST(JobTextTest, ContrastiveJobs) {
  constexpr std::string_view kDual = R"(name: "pairs"
model {
  dual_encoder {
    a { input: "features" layer { name: "fc" linear { in: 10 out: 8 } } }
    b { input: "targets" layer { name: "fc" linear { in: 1 out: 8 } } }
    width: 4
  }
  loss { contrastive {} }
}
data { train { synthetic { samples: 40 } } }
optimizer { lr: 0.1 sgd {} }
)";
  const Job job = ParseOk(std::string(kDual));
  EXPECT_EQ(GetLossKind(job.model.loss), LossKind::kContrastive);
  const auto& dual = std::get<DualEncoderSpec>(job.model.architecture);
  EXPECT_EQ(dual.a.input, "features");
  EXPECT_EQ(dual.b.layer.size(), 1U);
  EXPECT_EQ(dual.temperature, 0.07);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  EXPECT_THAT(Error(With(kDual, "contrastive", "mean_squared_error")),
              HasSubstr("dual_encoder needs contrastive"));
  EXPECT_THAT(Error(With(kMinimal, "mean_squared_error", "contrastive")),
              HasSubstr("contrastive needs dual_encoder"));
  EXPECT_THAT(Error(With(kDual, "data {", "data { eval { synthetic { samples: 4 } }")),
              HasSubstr("data.eval: a contrastive loss has no evaluation"));
  EXPECT_EQ(ParseOk(StrCat(kDual, "device: CUDA")).device, Device::kCuda);
  EXPECT_THAT(Error(With(kDual, "width: 4", "width: 4 max_scale: 3")),
              HasSubstr("at least 1 / temperature"));
  EXPECT_THAT(Error(With(kDual, "out: 8 } }", "out: 8 } } layer { name: \"fc\" relu {} }")),
              HasSubstr("model.dual_encoder.a.layer[1].name: two layers are called 'fc'"));
}

TEST(JobTextTest, LabelSmoothingAndWeights) {
  EXPECT_EQ(std::get<SoftmaxCrossEntropySpec>(ParseOk(kFull).model.loss).label_smoothing, 0);
  const Job job = ParseOk(With(
      With(kFull, "softmax_cross_entropy {}", "softmax_cross_entropy { label_smoothing: 0.1 }"),
      "classes: 10 }", "classes: 10 weights: \"w.npy\" }"));
  EXPECT_EQ(std::get<SoftmaxCrossEntropySpec>(job.model.loss).label_smoothing, 0.1);
  EXPECT_EQ(std::get<NpySpec>(*job.data.eval).weights, "w.npy");
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  EXPECT_THAT(Error(With(kFull, "softmax_cross_entropy {}",
                         "softmax_cross_entropy { label_smoothing: 1.5 }")),
              HasSubstr("label_smoothing: must be from 0 to 1, found 1.5"));
}

TEST(JobTextTest, Metrics) {
  const Job job = ParseOk(StrCat(kFull, "metric { top_k { k: 3 } } metric { matthews {} }"));
  ASSERT_EQ(job.metric.size(), 2U);
  EXPECT_EQ(std::get<TopKSpec>(job.metric[0]).k, 3);
  EXPECT_TRUE(std::holds_alternative<MatthewsSpec>(job.metric[1]));
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  const std::string line = With(kMinimal, "data {", "data { eval { synthetic { samples: 9 } }");
  EXPECT_EQ(ParseOk(StrCat(line, "metric { r2 {} } metric { mae {} }")).metric.size(), 2U);
  EXPECT_THAT(Error(StrCat(line, "metric { f1_macro {} }")),
              AllOf(HasSubstr("metric[0]: f1_macro needs labels"), HasSubstr("mse, mae, r2")));
  EXPECT_THAT(Error(StrCat(kFull, "metric { accuracy {} } metric { r2 {} }")),
              HasSubstr("metric[1]: r2 needs targets"));
  EXPECT_THAT(Error(StrCat(kMinimal, "metric { r2 {} }")), HasSubstr("metric[0]: needs data.eval"));
  EXPECT_THAT(Error(StrCat(kFull, "metric { top_k { k: 11 } }")),
              HasSubstr("top_k.k: expected at most the 10 classes, found 11"));
  EXPECT_THAT(Error(StrCat(kFull, "metric { top_k {} } metric { top_k { k: 5 } }")),
              HasSubstr("metric[1]: is metric[0] again"));
  EXPECT_THAT(Error(StrCat(kFull, "metric {}")), HasSubstr("metric[0]: needs accuracy, top_k, "));
}

TEST(JobTextTest, Evaluations) {
  const Job job = ParseOk(StrCat(kFull, "evaluation { every_updates: 50 }"));
  EXPECT_EQ(job.evaluation.every_updates, 50);
  EXPECT_EQ(JobText(ParseOk(JobText(job))), JobText(job));
  EXPECT_THAT(Error(StrCat(kFull, "evaluation { every_updates: -1 }")),
              HasSubstr("evaluation.every_updates: must be at least 0, found -1"));
  EXPECT_THAT(Error(StrCat(kFull, "evaluation { least_change: 0.1 }")),
              HasSubstr("evaluation.least_change: needs a patience above 0"));
  for (const char* text :
       {"every_updates: 50", "patience: 3", "keep_best: true", "metric: 'mse'"}) {
    EXPECT_THAT(Error(StrCat(kMinimal, "evaluation { ", text, " }")),
                HasSubstr("evaluation: the job has no data.eval"));
  }
}

TEST(JobTextTest, RequiredFields) {
  EXPECT_EQ(Error(""), "job.txtpb: name: is required");
  EXPECT_THAT(Error("name: \"a\""), HasSubstr("model: is required"));
  EXPECT_THAT(Error(With(kMinimal, "loss { mean_squared_error {} }", "")),
              HasSubstr("model.loss: is required"));
  EXPECT_THAT(Error(With(kMinimal, "mean_squared_error {}", "")), HasSubstr("model.loss"));
  EXPECT_THAT(Error(With(kMinimal, "train { synthetic { samples: 4096 } }", "")),
              HasSubstr("data.train: is required"));
  EXPECT_THAT(Error(With(kMinimal, "lr: 0.1", "")), HasSubstr("optimizer.lr: is required"));
  EXPECT_THAT(Error(With(kMinimal, "sgd {}", "")),
              HasSubstr("optimizer: needs sgd, adamw or adagrad"));
  EXPECT_THAT(Error(With(kMinimal, "linear { in: 10 out: 1 }", "")),
              HasSubstr("model.layer[0]: needs flatten, linear, relu, "));
  EXPECT_THAT(Error(With(kFull, "images: \"train-images.gz\"", "")),
              HasSubstr("data.train.idx.images: is required"));
  EXPECT_THAT(Error(With(kFull, "targets: \"y.npy\"", "targets: \"a\\000b\"")), HasSubstr("NUL"));
}

// A text, what to replace, and the message that must follow.
struct BadValue {
  std::string_view text;
  std::string_view from;
  std::string_view to;
  std::string_view message;
};

TEST(JobTextTest, NamesAndQuotesWrongValues) {
  const BadValue cases[] = {
      {kMinimal, "\"line\"", "\"a b\"", "name: may contain letters, digits and . _ -, found 'a b'"},
      {kMinimal, "\"line\"", "\"..\"", "found '..'"},
      {kMinimal, "\"line\"", "\"../x\"", "found '../x'"},
      {kMinimal, "\"fc\"", "\"f/c\"", "model.layer[0].name: may contain"},
      {kMinimal, "in: 10", "in: 0", "model.layer[0].linear.in: must be at least 1, found 0"},
      {kMinimal, "out: 1", "out: -3", "linear.out: must be at least 1, found -3"},
      {kMinimal, "samples: 4096", "samples: 0", "samples: must be at least 1, found 0"},
      {kMinimal, "samples: 4096", "samples: 1 noise: -1", "noise: must be at least 0, found -1"},
      {kMinimal, "samples: 4096", "samples: 1 noise: nan", "found nan"},
      {kMinimal, "lr: 0.1", "lr: 0", "optimizer.lr: must be above 0, found 0"},
      {kMinimal, "lr: 0.1", "lr: -0.1", "found -0.1"},
      {kMinimal, "lr: 0.1", "lr: inf", "found inf"},
      {kMinimal, "lr: 0.1", "lr: nan", "found nan"},
      {kMinimal, "sgd {}", "sgd { momentum: 1 }",
       "momentum: must be at least 0 and below 1, found 1"},
      {kMinimal, "sgd {}", "sgd { nesterov: true }", "nesterov: needs a momentum above 0"},
      {kMinimal, "sgd {}", "sgd { weight_decay: -1 }", "weight_decay: must be at least 0"},
      {kMinimal, "sgd {}", "sgd {} group { weight_decay: 0 }", "match: is required"},
      {kMinimal, "sgd {}", "sgd {} group { match: 'b' lr_factor: nan }", "lr_factor: must be"},
      {kMinimal, "sgd {}", "sgd {} group { match: 'b' weight_decay: -1 }", "weight_decay: must"},
      {kFull, "\"relu\"", "\"fc1\"", "model.layer[2].name: two layers are called 'fc1'"},
      {kFull, "std: 0.25", "std: 0", "data.normalize.std: must be above 0, found 0"},
      {kFull, "mean: 0.5", "mean: inf", "data.normalize.mean: must be finite, found inf"},
      {kFull, "target: 1000", "target: 0", "batch.target: must be at least 1, found 0"},
      {kFull, "micro: 32", "micro: -1", "batch.micro: must be at least 1, found -1"},
      {kFull, "reference: 256", "reference: -1", "batch.reference: must be at least 0"},
      {kFull, "beta1: 0.8", "beta1: 1", "beta1: must be at least 0 and below 1"},
      {kFull, "epsilon: 1e-6", "epsilon: 0", "epsilon: must be above 0, found 0"},
      {kFull, "every_updates: 100", "", "schedule.step.every_updates: is required"},
      {kFull, "warmup_updates: 5", "warmup_updates: -5", "warmup_updates: must be at least 0"},
      {kFull, "gamma: 0.5", "gamma: 0", "gamma: must be above 0"},
      {kFull, "clip_norm: 1.5", "clip_norm: -1", "clip_norm: must be at least 0, found -1"},
      {kFull, "epochs: 3", "epochs: -3", "epochs: must be at least 0, found -3"},
      {kFull, "max_updates: 400", "max_updates: -1", "max_updates: must be at least 0"},
      {kFull, "log_every: 7", "log_every: 0", "log_every: must be at least 1, found 0"},
      {kFull, "classes: 10", "classes: 9",
       "data.eval: must have the classes of data.train, expected 10, found 9"},
      {kFull, "classes: 10", "", "softmax_cross_entropy needs labels, but data.eval"},
      {kFull, "classes: 10", "",
       " has no labels (classes 0); give its classes, how many there are"},
      {kFull, "softmax_cross_entropy", "mean_squared_error", "data.train has labels (classes 10)"},
      {kMinimal, "mean_squared_error", "softmax_cross_entropy", "data.train has no labels"},
  };
  for (const BadValue& bad : cases) {
    const std::string message = Error(With(bad.text, bad.from, bad.to));
    EXPECT_THAT(message, StartsWith("job.txtpb: "));
    EXPECT_THAT(message, HasSubstr(bad.message));
  }
}

TEST(JobTextTest, SkipsByteOrderMark) {
  const auto job = ParseJobText(StrCat("\xEF\xBB\xBF", kMinimal), "job.txtpb");
  EXPECT_EQ(job->name, "line");
}

TEST(JobTextTest, FilesNextToLinkedFolderKeepTheirPlace) {
  namespace fs = std::filesystem;
  const TempFolder dir;
  for (const char* folder : {"team/jobs", "team/data", "mine/data"}) {
    ASSERT_OK(MakeFolders(dir.Path(folder), 0700));
  }
  fs::create_directory_symlink("../team/jobs", dir.Path("mine/jobs"));
  for (const char* file : {"team/data/a.csv", "mine/data/a.csv"}) (void)dir.Write(file, "");
  Job job;
  job.folder = dir.Path("mine/jobs");
  const auto located = [&](const std::string& path) {
    job.data.train = CsvSpec{.path = path};
    return std::get<CsvSpec>(WithAbsolutePaths(job).data.train).path;
  };
  EXPECT_EQ(located("../data/a.csv"), fs::canonical(dir.Path("team/data/a.csv")));
  EXPECT_EQ(located("../data/*.csv"), fs::canonical(dir.Path("team/data")) / "*.csv");
  EXPECT_EQ(located("./.././jobs/../data/a.csv"), fs::canonical(dir.Path("team/data/a.csv")));
  (void)dir.Write("team/jobs/b.csv", "");
  EXPECT_EQ(located("./b.csv"), dir.Path("mine/jobs/b.csv")) << "a link that no .. follows stays";
  job.folder = dir.Path("team/jobs");
  EXPECT_EQ(located("../data//./a.csv"), dir.Path("team/data/a.csv"));
  EXPECT_EQ(located("../../mine/data/a.csv"), dir.Path("mine/data/a.csv"));
}

TEST(JobTextTest, LoadsFiles) {
  const TempFolder dir;
  const std::string path = dir.path() + "/job.txtpb";
  std::ofstream(path) << kMinimal;
  EXPECT_EQ(LoadJob(path)->name, "line");
  EXPECT_EQ(LoadJob(path)->folder, dir.path());
  std::ofstream(path) << "name: 3";
  EXPECT_THAT(LoadJob(path), IsError(ErrorKind::kConfig, path + ":1:7: "));
  EXPECT_THAT(LoadJob(path + ".missing"), IsError(ErrorKind::kIo, "No such file"));
  EXPECT_THAT(LoadJob(dir.path()), IsError(ErrorKind::kIo, "directory"));
  EXPECT_THAT(LoadJob("/dev/zero"), IsError(ErrorKind::kIo, "/dev/zero"));
  std::ofstream(path) << std::string(kMaxTextBytes + 1, ' ');
  EXPECT_THAT(LoadJob(path), IsError(ErrorKind::kConfig, path));
}

}  // namespace
}  // namespace gaccd
