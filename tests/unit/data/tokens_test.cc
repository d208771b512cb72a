// Sources of token ids: arrays with a row for each sample, and one stream cut into windows.
#include "daemon/data/formats/tokens.h"

#include <cmath>
#include <numeric>

#include "collectives/base/strings.h"
#include "daemon/data/dataset.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

template <typename T>
std::string Npy(std::string_view descr, std::string_view shape, const std::vector<T>& values) {
  return NpyHeader(NpyDictionary(descr, shape)) + Raw(std::span<const T>(values));
}

class TokensTest : public testing::Test {
 protected:
  std::string Write(std::string_view name, std::string_view text) {
    return folder_.Write(name, text);
  }
  // Three samples of two tokens.
  TokensSpec Source() {
    return {.tokens = Write("tokens", Npy<std::uint16_t>("<u2", "(3, 2)", {5, 1, 2, 3, 4, 0})),
            .vocabulary = 6};
  }
  static std::vector<std::int32_t> Read(const Dataset& data, std::string_view name,
                                        const std::vector<std::int64_t>& indices) {
    BatchMemory memory(data.spec(), std::ssize(indices));
    data.Gather(indices, memory.view());
    return Values<std::int32_t>(data.spec(), memory, name);
  }
  TempFolder folder_;
};

TEST_F(TokensTest, JobNamesArrays) {
  const std::string x = Write("x", Npy<float>("<f4", "(2, 3)", {1, 2, 3, 4, 5, 6}));
  const std::string t = Write("t", Npy<std::int64_t>("<i8", "(2, 2)", {5, 1, 0, 3}));
  const auto data = Opened(ArraysSpec{{{"image", x, 0}, {"text", t, 6}}});
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(data->spec(),
            (SampleSpec{.tensors = {{"image", DType::kF32, {3}}, {"text", DType::kI32, {2}}},
                        .other_vocabularies = {{"text", 6}}}));
  EXPECT_EQ(Describe(data->spec()), "image f32 [3], text i32 [2], a vocabulary of 6 for 'text'");
  EXPECT_EQ(Opened(ArraysSpec{{{"text", t, 6}, {"tokens", t, 7}}})->spec().vocabulary, 7);
  EXPECT_THAT(Read(*data, "text", {1, 0}), ElementsAre(0, 3, 5, 1));
  const auto refused = [](std::vector<NamedArraySpec> arrays) {
    return std::string(OpenDataset(ArraysSpec{std::move(arrays)}, {}).status().message());
  };
  EXPECT_THAT(refused({{"image", x, 0}, {"image", x, 0}}), HasSubstr("two arrays are called"));
  EXPECT_THAT(refused({{"text", t, 5}}), HasSubstr("expected tokens in [0, 5), found 5"));
  EXPECT_THAT(refused({{"text", x, 5}}), HasSubstr("expected integers of shape"));
  const std::string masks =
      Write("masks", Npy<std::uint8_t>("|u1", "(2, 1, 3)", {2, 0, 1, 3, 4, 0}));
  EXPECT_THAT(Read(*Opened(ArraysSpec{{{"mask", masks, 5}}}), "mask", {1}), ElementsAre(3, 4, 0));
  EXPECT_THAT(refused({{"tokens", masks, 5}}),
              HasSubstr("expected integers of shape [samples, length]"));
  const std::string one = Write("one", Npy<float>("<f4", "(1, 3)", {1, 2, 3}));
  EXPECT_THAT(refused({{"image", x, 0}, {"other", one, 0}}), HasSubstr("expected 2 rows"));
}

TEST_F(TokensTest, ReadsSampleValuesAndLabels) {
  const std::string id = Write("id", Npy<std::int64_t>("<i8", "(3,)", {5, 1, 0}));
  const std::string size = Write("size", Npy<float>("<f4", "(3,)", {1, 2, 3}));
  const std::string label = Write("label", Npy<std::int64_t>("<i8", "(3,)", {2, 0, 1}));
  const auto arrays = [&](const std::string& labels) {
    return std::vector<NamedArraySpec>{
        {"user", id, 6}, {"size", size, 0}, {"labels", labels, 0}, {"weights", size, 0}};
  };
  const auto data = Opened(ArraysSpec{arrays(label), 3});
  EXPECT_EQ(data->spec(), (SampleSpec{.tensors = {{"user", DType::kI32, {1}},
                                                  {"size", DType::kF32, {1}},
                                                  {"labels", DType::kI32, {}},
                                                  {"weights", DType::kF32, {}}},
                                      .classes = 3,
                                      .other_vocabularies = {{"user", 6}}}));
  EXPECT_THAT(Read(*data, "user", {2, 0}), ElementsAre(0, 5));
  EXPECT_THAT(Read(*data, "labels", {0, 2}), ElementsAre(2, 1));
  const std::string of_tokens =
      Write("of_tokens", Npy<std::int64_t>("<i8", "(3, 2)", {2, -100, 0, 1, 1, 0}));
  EXPECT_THAT(
      Read(*Opened(ArraysSpec{{{"user", id, 6}, {"labels", of_tokens, 0}}, 3}), "labels", {0}),
      ElementsAre(2, -100));
  const auto refused = [](std::vector<NamedArraySpec> some, std::int64_t classes) {
    return std::string(OpenDataset(ArraysSpec{std::move(some), classes}, {}).status().message());
  };
  EXPECT_THAT(refused(arrays(label), 2), HasSubstr("expected labels in [0, 2), found 2"));
  EXPECT_THAT(refused(arrays(of_tokens), 3), HasSubstr("expected a weight for each label, [2]"));
  EXPECT_THAT(refused(arrays(label), 0), HasSubstr("'labels' needs classes"));
  EXPECT_THAT(refused({{"user", id, 6}}, 3), HasSubstr("3 classes need an array called 'labels'"));
  EXPECT_THAT(refused(arrays(size), 3), HasSubstr("expected integers of shape"));
  const std::string scalar = Write("scalar", Npy<float>("<f4", "()", {1}));
  EXPECT_THAT(refused({{"weights", scalar, 0}, {"labels", label, 0}}, 3),
              HasSubstr("expected shape [samples, ...], found []"));
}

// Wherever the weights are in the list.
TEST_F(TokensTest, EvaluationNeedsNoWeights) {
  const std::string x = Write("x", Npy<float>("<f4", "(3, 1)", {1, 2, 3}));
  const std::string label = Write("label", Npy<std::int64_t>("<i8", "(3,)", {2, 0, 1}));
  const std::string weight = Write("weight", Npy<float>("<f4", "(3,)", {4, 5, 6}));
  Job job;
  job.data.train = ArraysSpec{{{"x", x, 0}, {"weights", weight, 0}, {"labels", label, 0}}, 3};
  job.data.eval = ArraysSpec{{{"x", x, 0}, {"labels", label, 0}}, 3};
  const auto opened = ValueOrThrow(OpenTrainingData(job));
  EXPECT_EQ(opened.eval->spec(), opened.train->spec());
  BatchMemory memory(opened.eval->spec(), 2);
  opened.eval->Gather(std::vector<std::int64_t>{2, 0}, memory.view());
  EXPECT_THAT(Values<float>(opened.eval->spec(), memory, "x"), ElementsAre(3, 1));
  EXPECT_THAT(Values<float>(opened.eval->spec(), memory, "weights"), ElementsAre(1, 1));
  EXPECT_THAT(Values<std::int32_t>(opened.eval->spec(), memory, "labels"), ElementsAre(1, 2));
}

TEST_F(TokensTest, ReadsAllTensors) {
  TokensSpec source = Source();
  source.lengths = Write("lengths", Npy<std::int64_t>("<i8", "(3,)", {2, 1, 2}));
  source.segments = Write("segments", Npy<std::uint8_t>("|u1", "(3, 2)", {0, 1, 0, 0, 1, 1}));
  source.labels = Write("labels", Npy<std::int32_t>("<i4", "(3,)", {1, 0, 2}));
  source.classes = 3;
  const auto data = Opened(source);
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->spec(), (SampleSpec{.tensors = {{"tokens", DType::kI32, {2}},
                                                  {"lengths", DType::kI32, {}},
                                                  {"segments", DType::kI32, {2}},
                                                  {"labels", DType::kI32, {}}},
                                      .classes = 3,
                                      .vocabulary = 6}));
  EXPECT_THAT(Read(*data, "tokens", {2, 0}), ElementsAre(4, 0, 5, 1));
  EXPECT_THAT(Read(*data, "lengths", {1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(Read(*data, "segments", {0}), ElementsAre(0, 1));
  EXPECT_THAT(Read(*data, "labels", {2, 1}), ElementsAre(2, 0));
  EXPECT_EQ(Opened(Source())->spec().classes, 0);  // no labels at all
}

TEST_F(TokensTest, LabelsOfEveryPositionMayBeMissing) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, 0, -100, -100}));
  const auto data = Opened(source);
  EXPECT_EQ(data->spec().classes, 6);
  EXPECT_THAT(Read(*data, "labels", {0, 2}), ElementsAre(5, -100, -100, -100));
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, -99, 0, 0}));
  EXPECT_THAT(Refused(ErrorKind::kData, source),
              AllOf(HasSubstr("[0, 6) or -100, found -99 for sample 1, column 1")));
}

TEST_F(TokensTest, AnyLabelMayBeIgnored) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -1, 0, 0, -1, -1}));
  source.ignored_label = -1;
  const auto data = Opened(source);
  EXPECT_EQ(data->spec().ignored_label, -1);
  EXPECT_THAT(Read(*data, "labels", {0}), ElementsAre(5, -1));
  source.ignored_label = 3;
  EXPECT_THAT(Refused(ErrorKind::kData, source), HasSubstr("[0, 6) or 3, found -1 for sample 0"));
}

TEST_F(TokensTest, SampleClassIsNotIgnored) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int32_t>("<i4", "(3,)", {1, 0, 2}));
  source.classes = 3;
  for (const std::int64_t none : {-1, 3}) {
    source.ignored_label = none;
    EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 0);
  }
  for (const std::int64_t label : {0, 2}) {
    source.ignored_label = label;
    EXPECT_THAT(Refused(ErrorKind::kConfig, source),
                HasSubstr(StrCat("expected an ignored_label outside of [0, 3), found ", label)));
  }
}

// They count in the loss.
TEST_F(TokensTest, CountsSamplesWithLabelsBehindTheirLength) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 5, 0, -100, 0}));
  EXPECT_EQ(CountLabels(*Opened(source)).padded, 0) << "no lengths";
  source.lengths = Write("n", Npy<std::int32_t>("<i4", "(3,)", {1, 1, 2}));
  EXPECT_EQ(CountLabels(*Opened(source)).padded, 1);
  source.weights = Write("w", Npy<double>("<f8", "(3, 2)", {1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(CountLabels(*Opened(source)).padded, 0) << "of weight 0";
}

// The same where the training data has weights, and the evaluation data none.
TEST_F(TokensTest, CountsLabelsOfEqualWeight) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, 0, -100, -100}));
  const SampleSpec weighted{
      .tensors = {{"tokens", DType::kI32, {2}}, {"weights", DType::kF32, {2}}}};
  const auto data = WithEqualWeights(ValueOrThrow(OpenDataset(source, {})), weighted);
  EXPECT_EQ(CountLabels(*data).unlabelled, 1);
}

// Ignored, or of the weight 0; also where a sample is read in the place of another.
TEST_F(TokensTest, CountsUnlabelledSamples) {
  TokensSpec source = Source();
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 0) << "no labels are asked for";
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, 0, -100, -100}));
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 1);
  source.weights = Write("w", Npy<double>("<f8", "(3, 2)", {0, 1, 0, 0.5, 1, 1}));
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 2);
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, 9, -100, -100}));
  const auto rest =
      OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 1, .leave_out = true});
  ASSERT_TRUE(rest.ok()) << rest.status().message();
  EXPECT_EQ((*rest)->size(), 2);
  EXPECT_EQ(CountLabels(**rest).unlabelled, 2);
  source.labels = Write("one", Npy<std::int32_t>("<i4", "(3,)", {1, 0, 2}));
  source.classes = 3;
  source.weights.reset();
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 0) << "a class always counts";
  source.weights = Write("w", Npy<float>("<f4", "(3,)", {1, 0, 2}));
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 1);
  source.tokens = Write("tokens-2", Npy<std::uint16_t>("<u2", "(3, 2)", {5, 1, 2, 3, 4, 0}));
  (void)Write("tokens-1", Npy<std::uint16_t>("<u2", "(3, 2)", {5, 1, 2, 3, 4, 0}));
  for (const char* part : {"1", "2"}) {
    (void)Write(std::string("y-") + part, Npy<std::int32_t>("<i4", "(3,)", {1, 0, 2}));
    (void)Write(std::string("v-") + part, Npy<float>("<f4", "(3,)", {0, 0, 2}));
  }
  source.tokens = folder_.Path("tokens-*");
  source.labels = folder_.Path("y-*");
  source.weights = folder_.Path("v-*");
  EXPECT_EQ(CountLabels(*Opened(source)).unlabelled, 2 * 2) << "of two files";
}

TEST_F(TokensTest, LabelsHaveWeights) {
  TokensSpec source = Source();
  source.labels = Write("l", Npy<std::int64_t>("<i8", "(3, 2)", {5, -100, 0, 0, 1, 2}));
  source.weights = Write("w", Npy<double>("<f8", "(3, 2)", {0.5, 0, 1, 2, 3, 4}));
  const auto data = Opened(source);
  EXPECT_EQ(*data->spec().Find("weights"), (TensorSpec{"weights", DType::kF32, {2}}));
  BatchMemory memory(data->spec(), 2);
  data->Gather(std::vector<std::int64_t>{2, 0}, memory.view());
  EXPECT_THAT(Values<float>(data->spec(), memory, "weights"), ElementsAre(3, 4, 0.5, 0));
  source.labels = Write("one", Npy<std::int32_t>("<i4", "(3,)", {1, 0, 2}));
  source.classes = 3;
  EXPECT_THAT(Refused(ErrorKind::kData, source),
              HasSubstr("expected weights of shape [3], found shape [3, 2]"));
  source.weights = Write("w", Npy<float>("<f4", "(3,)", {1, 0, 2}));
  EXPECT_EQ(Opened(source)->spec().Find("weights")->shape, Shape{});
  for (const auto& [bad, text] : {std::pair(-0.25F, "-0.25"), {NAN, "nan"}, {INFINITY, "inf"}}) {
    source.weights = Write("w", Npy<float>("<f4", "(3,)", {1, bad, 2}));
    EXPECT_THAT(
        Refused(ErrorKind::kData, source),
        HasSubstr(std::string("finite weights of at least 0, found ") + text + " for sample 1"));
  }
  source.labels.reset();
  EXPECT_THAT(Refused(ErrorKind::kConfig, source), HasSubstr("weights apply to labels"));
}

TEST_F(TokensTest, ChecksEveryId) {
  const std::int64_t rows = 6000;  // several blocks of the check
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows) * 7, 9);
  for (const std::int64_t at : {0L, 16383L, 16384L, rows * 7 - 1}) {
    for (const std::int32_t bad : {10, -1, std::numeric_limits<std::int32_t>::min()}) {
      ids[static_cast<std::size_t>(at)] = bad;
      const TokensSpec source{.tokens = Write("t", Npy("<i4", "(6000, 7)", ids)), .vocabulary = 10};
      EXPECT_THAT(
          Refused(ErrorKind::kData, source),
          HasSubstr("t: expected tokens in [0, 10), found " + std::to_string(bad) + " for sample " +
                    std::to_string(at / 7) + ", column " + std::to_string(at % 7)));
      // Or another sample takes its place.
      const auto data =
          ValueOrThrow(OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 1}));
      ASSERT_EQ(data->bad_records().size(), 1U);
      EXPECT_EQ(data->bad_records()[0].sample, at / 7);
      EXPECT_THAT(Read(*data, "tokens", {at / 7}), ElementsAre(9, 9, 9, 9, 9, 9, 9));
      ids[static_cast<std::size_t>(at)] = 9;
    }
  }
}

TEST_F(TokensTest, RefusesMismatches) {
  const auto message = [&](auto change) {
    TokensSpec source = Source();
    change(source);
    return Refused(ErrorKind::kData, source);
  };
  const std::string threes = Write("threes", Npy<std::int32_t>("<i4", "(3,)", {1, 3, 1}));
  EXPECT_THAT(message([&](auto& s) { s.lengths = threes; }),
              HasSubstr("expected lengths in [1, 3), found 3 for sample 1"));
  EXPECT_THAT(message([&](auto& s) { s.segments = threes; }),
              AllOf(HasSubstr("expected segments of shape [3, 2]"), HasSubstr("shape [3]")));
  EXPECT_THAT(message([&](auto& s) { s.tokens = threes; }), HasSubstr("[samples, length]"));
  const std::string twos = Write("twos", Npy<std::int32_t>("<i4", "(2,)", {1, 1}));
  EXPECT_THAT(message([&](auto& s) { s.lengths = twos; }),
              AllOf(HasSubstr("expected 3 lengths"), HasSubstr("found 2")));
  const std::string floats = Write("floats", Npy<float>("<f4", "(3, 2)", {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(message([&](auto& s) { s.tokens = floats; }), HasSubstr("integers, found f32"));
  TokensSpec source = Source();
  EXPECT_THAT(Refused(ErrorKind::kConfig, source, {.scale = 2}), HasSubstr("normalize"));
  source.labels = threes;
  EXPECT_THAT(Refused(ErrorKind::kConfig, source), HasSubstr("classes from 1"));
}

TEST_F(TokensTest, CutsStreamIntoWindowsWithShiftedLabels) {
  std::vector<std::uint16_t> ids(12);
  std::iota(ids.begin(), ids.end(), std::uint16_t{0});
  const auto open = [&](const std::string& shape, std::vector<std::uint16_t> values) {
    values.resize(static_cast<std::size_t>(std::stoi(shape.substr(1))));
    return StreamSpec{
        .path = Write("stream", Npy("<u2", shape, values)), .length = 4, .vocabulary = 12};
  };
  const auto data = Opened(open("(12,)", ids));
  EXPECT_EQ(data->size(), 2);
  EXPECT_THAT(Read(*data, "tokens", {1, 0}), ElementsAre(4, 5, 6, 7, 0, 1, 2, 3));
  EXPECT_THAT(Read(*data, "labels", {1, 0}), ElementsAre(5, 6, 7, 8, 1, 2, 3, 4));
  EXPECT_EQ(data->spec().classes, 12);
  EXPECT_EQ(Opened(open("(9,)", ids))->size(), 2);
  EXPECT_EQ(Opened(open("(8,)", ids))->size(), 1);
  EXPECT_THAT(Refused(ErrorKind::kData, open("(4,)", ids)),
              AllOf(HasSubstr("at least 5"), HasSubstr("shape [4]")));
  // An id is a token of one sample or a label of the one before, and what no sample uses is not
  // looked at.
  for (const auto& [at, sample] : {std::pair(4, 0), {8, 1}, {3, 0}, {7, 1}}) {
    std::vector<std::uint16_t> bad = ids;
    bad[static_cast<std::size_t>(at)] = 12;
    EXPECT_THAT(
        Refused(ErrorKind::kData, open("(12,)", bad)),
        HasSubstr(at == 4 ? "found 12 for sample 1, column 0"
                          : "found 12 for sample " + std::to_string(sample) + ", column 3"));
    const auto skipped = OpenDataset(open("(12,)", bad), {},
                                     {.policy = OnBadRecord::kSkip, .quota = 2, .leave_out = true});
    if (at == 4) {
      EXPECT_THAT(skipped, HasMessage(HasSubstr("all 2 records")));
    } else {
      ASSERT_TRUE(skipped.ok());
      EXPECT_EQ((*skipped)->size(), 1);
    }
  }
  ids[9] = 12;
  EXPECT_EQ(Opened(open("(12,)", ids))->size(), 2);
}

}  // namespace
}  // namespace gaccd
