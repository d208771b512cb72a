#include "daemon/weights/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "daemon/weights/safetensors.h"
#include "daemon/weights/transformers_folder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

Result<WeightsReport> LoadParameters(const std::string& path, const FlatLayout& layout,
                                     std::span<float> parameters, const WeightNames& names = {},
                                     const WeightRules& rules = {}) {
  GACCD_ASSIGN_OR_RETURN(const SafetensorsFile file, ReadSafetensors(path));
  return AssignParameters(path, file, layout, parameters, names, rules);
}

class Weights : public testing::Test {
 protected:
  void SetUp() override {
    // 6 and 3 elements, so that there is padding after both.
    ASSERT_TRUE(layout_.Add("fc.weight", {3, 2}).ok());
    ASSERT_TRUE(layout_.Add("fc.bias", {3}).ok());
    parameters_.resize(static_cast<std::size_t>(layout_.size()));
    for (const FlatEntry& entry : layout_.entries()) {
      const auto begin = parameters_.begin() + entry.offset;
      std::iota(begin, begin + entry.elements, static_cast<float>(entry.offset) + 0.5F);
    }
  }

  [[nodiscard]] std::string Path() const { return folder_.Path("weights.safetensors"); }
  void Write(const std::vector<TensorView>& tensors) {
    ASSERT_TRUE(WriteSafetensors(Path(), tensors).ok());
  }

  const TempFolder folder_;
  FlatLayout layout_;
  std::vector<float> parameters_;
};

TEST_F(Weights, RoundTrip) {
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  std::vector<float> loaded(parameters_.size());
  const auto report = ValueOrThrow(LoadParameters(Path(), layout_, loaded));
  EXPECT_EQ(loaded, parameters_);  // the padding is zero in both
  EXPECT_EQ(ToText(report), "weights " + Path() + ": 2 of 2 parameters are loaded");
}

TEST_F(Weights, AcceptsMissingPrefixCopiesAndBuffers) {
  const WeightNames names{
      .prefix = "fc.", .buffers = {".mask"}, .tied = {{"head.weight", "fc.weight"}}};
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> three = {3};
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  std::vector<float> copy = weight;
  const std::vector<float> bias = {7, 8, 9};
  const std::vector<TensorView> tensors = {{"weight", shape, weight},
                                           {"bias", three, bias},
                                           {"head.weight", shape, copy},
                                           {"h.0.mask", three, bias}};
  Write(tensors);
  std::vector<float> loaded(parameters_.size());
  ASSERT_OK(LoadParameters(Path(), layout_, loaded, names).status());
  EXPECT_TRUE(std::equal(weight.begin(), weight.end(), loaded.begin()));
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded), HasKind(ErrorKind::kData));

  copy[5] = 0;  // no copy: the model would compute something else than the file's
  Write(tensors);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("head.weight")));
  Write({{"weight", shape, weight}, {"fc.weight", shape, weight}, {"bias", three, bias}});
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("two tensors")));
}

// As safetensors.torch.save_model() writes it.
TEST_F(Weights, AcceptsTableUnderItsOtherNameAlone) {
  const WeightNames names{.prefix = "fc.",
                          .buffers = {},
                          .tied = {{"head.weight", "fc.weight"}, {"table", "fc.weight"}}};
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> three = {3};
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  std::vector<float> copy = weight;
  const std::vector<float> bias = {7, 8, 9};
  const std::vector<TensorView> tensors = {
      {"head.weight", shape, weight}, {"fc.bias", three, bias}, {"table", shape, copy}};
  Write(tensors);
  std::vector<float> loaded(parameters_.size());
  ASSERT_OK(LoadParameters(Path(), layout_, loaded, names).status());
  EXPECT_TRUE(std::equal(weight.begin(), weight.end(), loaded.begin()));
  const auto with_new_weights = ValueOrThrow(
      LoadParameters(Path(), layout_, loaded, names, {.new_weights = {"fc.weight"}, .unused = {}}));
  EXPECT_THAT(with_new_weights.unused, testing::ElementsAre("head.weight", "table"));
  copy[5] = 0;
  Write(tensors);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("table: expected the values of")));
}

TEST_F(Weights, RefusesUnusedWeightsThatAreUsed) {
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  std::vector<float> loaded(parameters_.size());
  EXPECT_THAT(
      LoadParameters(Path(), layout_, loaded, {}, {.new_weights = {}, .unused = {"fc.bias"}}),
      IsError(ErrorKind::kConfig, "--new-weights=fc.bias"));
}

TEST_F(Weights, HaveNamesAndShapesOfStateDict) {
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  const auto file = ValueOrThrow(ReadSafetensors(Path()));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].name, "fc.weight");
  EXPECT_EQ(file.tensors[0].shape, (Shape{3, 2}));
  EXPECT_EQ(file.tensors[0].values, (std::vector<float>{0.5, 1.5, 2.5, 3.5, 4.5, 5.5}));
  EXPECT_EQ(file.tensors[1].shape, (Shape{3}));
}

TEST_F(Weights, RefusesAnotherModel) {
  const std::vector<float> values(6);
  const std::vector<std::int64_t> weight = {3, 2};
  const std::vector<std::int64_t> turned = {2, 3};
  const std::vector<std::int64_t> bias = {3};
  const std::span<const float> six(values);
  std::vector<float> loaded(parameters_.size());
  const auto load = [&] { return LoadParameters(Path(), layout_, loaded); };

  Write({{"fc.weight", weight, six}});
  EXPECT_THAT(load(), IsError(ErrorKind::kData, "fc.bias"));

  Write({{"fc.weight", turned, six}, {"fc.bias", bias, six.first(3)}});
  EXPECT_THAT(load(), IsError(ErrorKind::kData, "expected shape [3, 2], found [2, 3]"));

  Write(
      {{"fc.weight", weight, six}, {"fc.bias", bias, six.first(3)}, {"extra", bias, six.first(3)}});
  EXPECT_THAT(load(), IsError(ErrorKind::kData, "no parameter for 1 tensors: extra ("));

  std::vector<float> poisoned(6);
  poisoned[4] = std::numeric_limits<float>::quiet_NaN();
  Write({{"fc.weight", weight, poisoned}, {"fc.bias", bias, six.first(3)}});
  EXPECT_THAT(load(), IsError(ErrorKind::kData, "fc.weight: value 4 is not finite"));

  EXPECT_THAT(LoadParameters(folder_.Path("none"), layout_, loaded), HasKind(ErrorKind::kIo));
}

// All that does not fit is reported at once: the first few of each kind, and how many there are.
TEST_F(Weights, NamesAllMismatches) {
  ASSERT_OK(layout_.Add("constant:0", {2}, kNoDecay, /*frozen=*/true).status());  // not in files
  layout_.SetBuffer(2);
  parameters_.resize(static_cast<std::size_t>(layout_.size()));
  const std::vector<std::int64_t> weight = {4, 2};
  const std::vector<std::int64_t> one = {1};
  const std::vector<float> values(8);
  const std::span<const float> eight(values);
  const std::vector<std::string> extra = {"a", "b", "c", "d", "e"};
  std::vector<TensorView> tensors = {{"fc.weight", weight, eight}};
  for (const std::string& name : extra) tensors.push_back({name, one, eight.first(1)});
  Write(tensors);
  std::vector<float> loaded(parameters_.size());
  EXPECT_THAT(
      LoadParameters(Path(), layout_, loaded),
      HasMessage(testing::AllOf(
          testing::HasSubstr(Path() + ": weights of another model: "),
          testing::HasSubstr("fc.weight: expected shape [3, 2], found [4, 2] (--new-weights="),
          testing::HasSubstr("no tensor for 1 of 2 parameters: fc.bias [3] ("),
          testing::HasSubstr("no parameter for 5 tensors: a, b, c and 2 more ("))));
  EXPECT_EQ(loaded, std::vector<float>(loaded.size())) << "nothing was taken";
}

// The hint is a flag that can be given as it is.
TEST_F(Weights, GivesHintForHeadAndBatchNorm) {
  const std::vector<std::int64_t> weight = {4, 2};
  const std::vector<std::int64_t> four = {4};
  const std::vector<float> values(8);
  const std::span<const float> eight(values);
  std::vector<TensorView> tensors = {{"fc.weight", weight, eight},
                                     {"fc.bias", four, eight.first(4)}};
  Write(tensors);
  std::vector<float> loaded(parameters_.size());
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded),
              HasMessage(testing::HasSubstr("--new-weights=fc.weight,fc.bias")));

  const std::vector<std::int64_t> good = {3, 2};
  const std::vector<std::int64_t> three = {3};
  tensors = {{"fc.weight", good, eight.first(6)},
             {"fc.bias", three, eight.first(3)},
             {"bn.running_mean", three, eight.first(3)},
             {"bn.weight", three, eight.first(3)}};
  Write(tensors);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded),
              HasMessage(testing::AllOf(testing::HasSubstr("1 belong to batch norm"),
                                        testing::HasSubstr("without it"))));
}

TEST_F(Weights, NamesPyTorchFile) {
  std::ofstream(Path(), std::ios::binary) << "PK\x03\x04" << std::string(60, '\x08');
  std::vector<float> loaded(parameters_.size());
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded), IsError(ErrorKind::kData, "save_file"));
}

TEST_F(Weights, NewHeadKeepsInitialValuesOnRequest) {
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> four = {4};
  const std::vector<float> values = {1, 2, 3, 4, 5, std::numeric_limits<float>::quiet_NaN()};
  const std::span<const float> six(values);
  std::vector<float> loaded(parameters_.size(), -1.0F);
  const auto load = [&](const WeightRules& rules) {
    return LoadParameters(Path(), layout_, loaded, {}, rules);
  };
  const float at_weight = parameters_[0];
  const std::vector<float> good(parameters_.begin(), parameters_.begin() + 6);
  // Of another shape, or not there at all.
  for (const bool there : {true, false}) {
    std::vector<TensorView> tensors = {{"fc.weight", shape, good}};
    if (there) tensors.push_back({"fc.bias", four, six.first(4)});
    Write(tensors);
    EXPECT_THAT(load({}), HasKind(ErrorKind::kData));
    const auto report = ValueOrThrow(load({.new_weights = {"*.bias"}}));
    EXPECT_EQ(ToText(report), "weights " + Path() +
                                  ": 1 of 2 parameters are loaded; newly initialised: fc.bias [3]" +
                                  (there ? "; not used: fc.bias" : ""));
    EXPECT_EQ(loaded[0], at_weight);
    EXPECT_EQ(loaded[static_cast<std::size_t>(layout_.Find("fc.bias")->offset)], -1.0F);
  }
  EXPECT_THAT(load({.new_weights = {"classifier.*"}}), HasKind(ErrorKind::kConfig));
  EXPECT_THAT(load({.new_weights = {"classifier.*"}}),
              HasMessage("--new-weights: 'classifier.*' matches no parameter; the first is "
                         "'fc.weight'"));
  // A value that is no number does not matter where it is not used.
  Write({{"fc.weight", shape, six}});
  EXPECT_TRUE(load({.new_weights = {"fc.*"}}).ok());
}

TEST_F(Weights, CountsBuffersSeparately) {
  ASSERT_TRUE(layout_.Add("bn.running_mean", {3}, kNoDecay, /*frozen=*/true).ok());
  ASSERT_TRUE(layout_.Add("bn.running_var", {3}, kNoDecay, /*frozen=*/true).ok());
  for (const std::size_t buffer : {2, 3}) layout_.SetBuffer(buffer);
  parameters_.resize(static_cast<std::size_t>(layout_.size()));
  ASSERT_TRUE(SaveParameters(Path(), layout_, parameters_).ok());
  std::vector<float> loaded(parameters_.size());
  const auto report = ValueOrThrow(
      LoadParameters(Path(), layout_, loaded, {}, {.new_weights = {"*_var", "fc.bias"}}));
  EXPECT_THAT(ToText(report),
              testing::HasSubstr(": 1 of 2 parameters and 1 of 2 buffers are loaded; newly "
                                 "initialised: fc.bias [3], bn.running_var [3]"));
  EXPECT_EQ(ToRecord(report).parameters, 2);
  EXPECT_EQ(ToRecord(report).loaded, 1);
}

TEST_F(Weights, AllowsUnusedTensorsOnRequest) {
  const std::vector<std::int64_t> shape = {3, 2};
  const std::vector<std::int64_t> three = {3};
  const std::vector<float> values(6);
  const std::span<const float> six(values);
  Write({{"fc.weight", shape, six},
         {"fc.bias", three, six.first(3)},
         {"cls.a", three, six.first(3)},
         {"cls.b", three, six.first(3)}});
  std::vector<float> loaded(parameters_.size());
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded), HasKind(ErrorKind::kData));
  const auto report =
      ValueOrThrow(LoadParameters(Path(), layout_, loaded, {}, {.unused = {"cls.*"}}));
  EXPECT_EQ(report.unused, (std::vector<std::string>{"cls.a", "cls.b"}));
  const WeightsRecord record = ToRecord(report);
  EXPECT_EQ(record.file, Path());
  EXPECT_EQ(record.loaded, 2);
  EXPECT_EQ(record.parameters, 2);
  EXPECT_EQ(record.new_weights, "");
  EXPECT_EQ(record.unused, "cls.a, cls.b");
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, {}, {.unused = {"cls.*", "mlm.*"}}),
              HasMessage("--unused-weights: 'mlm.*' matches no tensor of " + Path()));
}

// As BertModel's files: without the prefix, and with positions as i64.
TEST_F(Weights, IgnoresBuffersOfOtherTypes) {
  const std::string header =
      R"({"weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)"
      R"("bias":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},)"
      R"("position_ids":{"dtype":"I64","shape":[1,2],"data_offsets":[36,52]},)"
      R"("a.position_ids":{"dtype":"U32","shape":[2],"data_offsets":[52,60]},)"
      R"("b.position_ids":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[60,63]}})";
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header + std::string(63, '\0');
  (void)folder_.Write("weights.safetensors", file);
  std::vector<float> loaded(parameters_.size(), 1.0F);
  const WeightNames names{.prefix = "fc.", .buffers = {"position_ids"}, .tied = {}};
  EXPECT_OK(LoadParameters(Path(), layout_, loaded, names).status());
  EXPECT_EQ(loaded[0], 0);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, {.prefix = "fc."}),
              HasMessage(testing::HasSubstr("position_ids")));
  file.replace(file.find("F32"), 3, "I32");
  (void)folder_.Write("weights.safetensors", file);
  EXPECT_THAT(LoadParameters(Path(), layout_, loaded, names),
              HasMessage(testing::HasSubstr("weight: expected dtype F32, BF16 or F16, found I32")));
}

TEST_F(Weights, WidensValuesOf16Bits) {
  const auto load = [&](const std::string& dtype, const std::vector<std::uint16_t>& bits) {
    const std::string header =
        StrCat(R"({"weight":{"dtype":")", dtype, R"(","shape":[3,2],"data_offsets":[0,12]},)",
               R"("bias":{"dtype":"F32","shape":[3],"data_offsets":[12,24]}})");
    const std::uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), sizeof length);
    file += header;
    file.append(reinterpret_cast<const char*>(bits.data()), bits.size() * 2);
    (void)folder_.Write("weights.safetensors", file + std::string(12, '\0'));
    std::vector<float> loaded(parameters_.size(), 1.0F);
    EXPECT_OK(LoadParameters(Path(), layout_, loaded, {.prefix = "fc."}).status());
    return std::vector<float>(loaded.begin(), loaded.begin() + 6);
  };
  EXPECT_THAT(load("BF16", {0x3f80, 0xc0a0, 0x0001, 0, 0x4049, 0x7f7f}),
              testing::ElementsAre(1, -5, 0x1p-133F, 0, 3.140625F, 0x1.fep127F));
  EXPECT_THAT(load("F16", {0x3c00, 0xc500, 0x0001, 0, 0x4248, 0x7bff}),
              testing::ElementsAre(1, -5, 0x1p-24F, 0, 3.140625F, 65504));
}

// Heads, epsilon and activation have no shape: other ones would be another model in silence.
TEST(TransformersConfigTest, RefusesAnotherModelByName) {
  const ModelSpec bert{.architecture = BertSpec{.context = 128, .heads = 6}};
  const ModelSpec gpt{.architecture = GptSpec{.heads = 4}};
  const auto check = [](const ModelSpec& model, const std::string& key, const std::string& value) {
    auto json = nlohmann::json::parse(*TransformersConfig(model));
    if (value.empty()) {
      json.erase(key);
    } else {
      json[key] = nlohmann::json::parse(value);
    }
    return CheckTransformersConfig(json.dump(), model);
  };
  for (const ModelSpec* model : {&bert, &gpt}) {
    EXPECT_TRUE(CheckTransformersConfig(*TransformersConfig(*model), *model).ok());
  }
  EXPECT_THAT(
      check(bert, "num_attention_heads", "12"),
      HasMessage(testing::HasSubstr("num_attention_heads: expected 6 (bert.heads), found 12")));
  EXPECT_THAT(check(bert, "num_attention_heads", ""),
              HasMessage(testing::HasSubstr("found 12, its default")));
  const std::pair<const char*, const char*> of_bert[] = {
      {"layer_norm_eps", "1e-5"},
      {"hidden_act", "\"gelu_new\""},
      {"position_embedding_type", "\"relative_key\""},
      {"is_decoder", "true"},
      {"max_position_embeddings", "512"},
      {"type_vocab_size", "16"},
      {"model_type", "\"roberta\""}};
  for (const auto& [key, value] : of_bert) {
    EXPECT_THAT(check(bert, key, value), HasKind(ErrorKind::kData)) << key;
    EXPECT_THAT(check(bert, key, value), HasMessage(testing::HasSubstr(key)));
  }
  const std::pair<const char*, const char*> of_gpt[] = {{"n_head", "12"},
                                                        {"layer_norm_epsilon", "1e-6"},
                                                        {"activation_function", "\"gelu\""},
                                                        {"scale_attn_by_inverse_layer_idx", "true"},
                                                        {"n_positions", "512"}};
  for (const auto& [key, value] : of_gpt) {
    EXPECT_THAT(check(gpt, key, value), HasMessage(testing::HasSubstr(key)));
  }
  for (const char* alike : {"\"gelu_pytorch_tanh\"", "\"gelu_new\""}) {
    EXPECT_TRUE(check(gpt, "activation_function", alike).ok());
  }
  EXPECT_FALSE(CheckTransformersConfig("[]", bert).ok());
  EXPECT_TRUE(CheckTransformersConfig("[]", {.layer = {{"fc", LinearSpec{1, 1}}}}).ok());
}

TEST(TransformersConfigTest, NewTableMayHaveAnotherSize) {
  const ModelSpec short_texts{.architecture = BertSpec{.context = 128}};
  const ModelSpec long_texts{.architecture = BertSpec{.context = 512}};
  const std::string config = *TransformersConfig(long_texts);
  EXPECT_FALSE(CheckTransformersConfig(config, short_texts).ok());
  const std::vector<std::string> new_weights = {"bert.embeddings.position*"};
  EXPECT_TRUE(CheckTransformersConfig(config, short_texts, new_weights).ok());
}

}  // namespace
}  // namespace gaccd
