#include <limits>

#include "daemon/data/formats/array.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

template <typename T>
std::string Values(const std::vector<T>& values) {
  return Raw(std::span<const T>(values));
}
// A header of 128 bytes.
std::string Head(std::string_view descr, std::string_view shape, int version = 1) {
  return NpyHeader(NpyDictionary(descr, shape), version);
}

const std::string kData = Values<float>({0.5F, -1, 2, 3, 4, 5});
const std::string kFeatures = Head("<f4", "(3, 2)") + kData;
const std::string kNpyLabels = Head("<i8", "(3,)") + Values<std::int64_t>({2, 0, 1});

class NpyTest : public testing::Test {
 protected:
  NpySpec Source(std::string_view features, std::string_view targets, std::int64_t classes = 0) {
    return {folder_.Write("features", features), folder_.Write("targets", targets), classes};
  }
  TempFolder folder_;
};

TEST_F(NpyTest, ReadsFloatsWithLabels) {
  const auto dataset = Opened(Source(kFeatures, kNpyLabels, 3), {.scale = 2, .mean = 1});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->spec().tensors[0].shape, testing::ElementsAre(2));
  const Batch batch = Gather(*dataset, {2, 0});
  EXPECT_THAT(batch.features, testing::ElementsAre(7.F, 9.F, 0.F, -3.F));
  EXPECT_THAT(batch.labels, testing::ElementsAre(1, 2));
}

TEST_F(NpyTest, LabelsMayHaveWeights) {
  NpySpec source = Source(kFeatures, kNpyLabels, 3);
  source.weights = folder_.Write("w", Head("<f4", "(3,)") + Values<float>({0.5F, 0, 2}));
  const auto dataset = Opened(source);
  BatchMemory memory(dataset->spec(), 2);
  dataset->Gather(std::vector<std::int64_t>{2, 0}, memory.view());
  EXPECT_THAT(gaccd::Values<float>(dataset->spec(), memory, "weights"),
              testing::ElementsAre(2, 0.5));
  source.weights = folder_.Write("w", Head("<f4", "(3,)") + Values<float>({0.5F, 0, -2}));
  EXPECT_THAT(Refused(ErrorKind::kData, source),
              HasSubstr("expected finite weights of at least 0, found -2 for sample 2"));
  source.weights = folder_.Write("w", Head("<f4", "(2,)") + Values<float>({1, 1}));
  EXPECT_THAT(Refused(ErrorKind::kData, source),
              HasSubstr("weights of shape [3], found shape [2]"));
}

// Weights belong to the loss of the training: evaluation data need none.
TEST_F(NpyTest, OnlyTrainingDataMayHaveWeights) {
  Job job;
  NpySpec train = Source(kFeatures, kNpyLabels, 3);
  job.data.eval = train;
  train.weights = folder_.Write("w", Head("<f4", "(3,)") + Values<float>({0.5F, 0, 2}));
  job.data.train = train;
  const auto opened = ValueOrThrow(OpenTrainingData(job));
  EXPECT_FALSE(opened.eval_weighted);
  EXPECT_EQ(opened.eval->spec(), opened.train->spec());
  BatchMemory memory(opened.eval->spec(), 2);
  opened.eval->Gather(std::vector<std::int64_t>{2, 0}, memory.view());
  EXPECT_THAT(gaccd::Values<float>(opened.eval->spec(), memory, "weights"),
              testing::ElementsAre(1, 1));
  EXPECT_THAT(gaccd::Values<std::int32_t>(opened.eval->spec(), memory, "labels"),
              testing::ElementsAre(1, 2));
  std::swap(job.data.train, *job.data.eval);
  EXPECT_THAT(OpenTrainingData(job), HasKind(ErrorKind::kConfig));
  job.data.train = *job.data.eval;
  EXPECT_TRUE(OpenTrainingData(job)->eval_weighted);
}

// One is 0 to 255, the other most likely 0 to 1: one normalisation would be wrong for one of them.
TEST_F(NpyTest, RefusesIntegersNextToFloats) {
  const std::string bytes = Head("|u1", "(3, 1, 2)") + "\1\2\3\4\5\6";
  const std::string floats = Head("<f8", "(3, 1, 2)") + Values<double>({1, 2, 3, 4, 5, 6});
  Job job;
  job.data.train = NpySpec{.features = folder_.Write("x", bytes),
                           .targets = folder_.Write("y", kNpyLabels),
                           .classes = 3};
  job.data.eval = NpySpec{.features = folder_.Write("x-eval", floats),
                          .targets = folder_.Write("y-eval", kNpyLabels),
                          .classes = 3};
  EXPECT_THAT(OpenTrainingData(job).status().message(),
              HasSubstr("the evaluation data: expected features stored as integers, as in the "
                        "training data, found floats"));
  job.data.train = NpySpec{.features = StrCat(folder_.path(), "/x*"),
                           .targets = StrCat(folder_.path(), "/y*"),
                           .classes = 3};
  EXPECT_THAT(OpenTrainingData(job).status().message(),
              HasSubstr("file 2 of 2: expected features stored as integers, as in the first, "
                        "found floats"));
  (void)folder_.Write("x-eval",
                      Head("<i2", "(3, 1, 2)") + Values<std::int16_t>({1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(OpenTrainingData(job).ok());
}

TEST_F(NpyTest, ReadsBytesI32LabelsAndEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const auto dataset =
        Opened(Source(Head("|u1", "(2, 1, 2)", version) + "\1\2\3\4",
                      Head("<i4", "(2,)", version) + Values<std::int32_t>({6, 5}), 7));
    EXPECT_THAT(Gather(*dataset, {1}).features, testing::ElementsAre(3.F, 4.F));
    EXPECT_THAT(Gather(*dataset, {1}).labels, testing::ElementsAre(5));
  }
}

template <typename T>
std::string Column(std::string_view descr) {
  return Head(descr, "(3, 1)") + Values<T>({1, 2, 100});
}

TEST_F(NpyTest, ReadsEveryExactFeatureTypeAndIntegerLabels) {
  for (const std::string& text :
       {Column<std::uint8_t>("|u1"), Column<std::int8_t>("|i1"), Column<std::uint16_t>("<u2"),
        Column<std::int16_t>("<i2"), Column<float>("<f4"), Column<double>("<f8")}) {
    const auto dataset = Opened(Source(text, kNpyLabels, 3), {.mean = 1, .std = 2});
    EXPECT_THAT(Gather(*dataset, {2, 0}).features, testing::ElementsAre(49.5F, 0.F));
  }
  EXPECT_THAT(Gather(*Opened(Source(kFeatures, Column<double>("<f8"))), {2}).targets,
              testing::ElementsAre(100.F));
  const auto labels = [&](std::string text) {
    text.replace(text.find("(3, 1)"), 6, "(3,)  ");
    return Gather(*Opened(Source(kFeatures, text, 101)), {2, 1}).labels;
  };
  for (const std::string& text :
       {Column<std::uint8_t>("|u1"), Column<std::int8_t>("|i1"), Column<std::uint16_t>("<u2"),
        Column<std::int16_t>("<i2"), Column<std::uint32_t>("<u4"), Column<std::int32_t>("<i4"),
        Column<std::uint64_t>("<u8"), Column<std::int64_t>("<i8")}) {
    EXPECT_THAT(labels(text), testing::ElementsAre(100, 2));
  }
  const std::string large = Head("<f8", "(3, 1)") + Values<double>({1, 1e300, 2});
  EXPECT_THAT(Refused(ErrorKind::kData, Source(large, kNpyLabels, 3)),
              AllOf(HasSubstr("finite values in f32"), HasSubstr("found 1e+300 for sample 1")));
}

// NaN and infinities, anywhere, in features and in targets: file, sample and column are named.
TEST_F(NpyTest, RequiresFiniteValues) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::int64_t rows = 5000;  // several blocks of the check
  const std::string labels = Head("<i8", "(5000,)") + Values(std::vector<std::int64_t>(5000));
  const std::string bytes = Head("|u1", "(5000, 1)") + std::string(5000, 'x');
  for (const std::int64_t at : {0L, 1L, 16383L, 16384L, 34999L}) {
    for (const float bad : {kNan, -kNan, kInf, -kInf}) {
      std::vector<float> values(static_cast<std::size_t>(rows) * 7,
                                std::numeric_limits<float>::max());
      values[static_cast<std::size_t>(at)] = bad;
      const std::string text = Head("<f4", "(5000, 7)") + Values(values);
      const std::string place =
          "for sample " + std::to_string(at / 7) + ", column " + std::to_string(at % 7);
      EXPECT_THAT(Refused(ErrorKind::kData, Source(text, labels, 1)),
                  AllOf(HasSubstr("features: expected finite"), HasSubstr(place)));
      EXPECT_THAT(Refused(ErrorKind::kData, Source(bytes, text)),
                  AllOf(HasSubstr("targets: expected finite"), HasSubstr(place)));
    }
  }
}

TEST_F(NpyTest, RefusesFeaturesThatOverflowNormalisation) {
  std::vector<float> values(6, 1.0F);
  values[3] = 3e38F;
  const std::string text = Head("<f4", "(3, 2)") + Values(values);
  EXPECT_EQ(Opened(Source(text, kNpyLabels, 3))->size(), 3);
  EXPECT_THAT(Refused(ErrorKind::kData, Source(text, kNpyLabels, 3), {.scale = 100}),
              AllOf(HasSubstr("after normalize, found 3e+38"), HasSubstr("sample 1, column 1")));
  EXPECT_THAT(Refused(ErrorKind::kData, Source(text, kNpyLabels, 3), {.mean = -3e38}),
              HasSubstr("after normalize"));
  // Targets are taken as they are.
  EXPECT_EQ(Opened(Source(kFeatures, text), {.scale = 100})->size(), 3);
  const std::string bytes = Head("|u1", "(3, 2)") + "123456";
  EXPECT_EQ(Opened(Source(bytes, kNpyLabels, 3), {.scale = 1e36})->size(), 3);
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source(bytes, kNpyLabels, 3), {.scale = 1e37}),
              AllOf(HasSubstr("stored 255"), HasSubstr("scale 1e+37")));
}

// Of large values that differ little, f32 has the difference only once they are normalised.
TEST_F(NpyTest, NormalisesWideFeaturesBeforeRoundingToF32) {
  const NormalizeSpec normalize{.mean = 1e9, .std = 3};
  const auto first = [&](const std::string& text) {
    return Gather(*Opened(Source(text, kNpyLabels, 3), normalize), {0, 1, 2}).features;
  };
  EXPECT_THAT(first(Head("<f8", "(3, 1)") + Values<double>({1e9 + 3, 1e9 - 1.5, 1e9})),
              testing::ElementsAre(1.F, -0.5F, 0.F));
  EXPECT_THAT(first(Head("<f4", "(3, 1)") + Values<float>({1e9F + 192, 1e9F - 64, 1e9F})),
              testing::ElementsAre(64.F, static_cast<float>(-64 / 3.0), 0.F));
}

TEST_F(NpyTest, ReadsVectorTargets) {
  const auto wide =
      Opened(Source(kFeatures, Head("<f4", "(3, 2)") + Values<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(wide->spec().Find("targets")->shape, Shape{2});
  EXPECT_THAT(Gather(*wide, {2, 1}).targets, testing::ElementsAre(5.F, 6.F, 3.F, 4.F));
  const auto narrow = Opened(Source(kFeatures, Head("<f4", "(3,)") + Values<float>({1, 2, 3})));
  EXPECT_EQ(narrow->spec().Find("targets")->shape, Shape{1});
}

TEST_F(NpyTest, AcceptsUnalignedData) {
  std::string header = Head("<f4", "(3, 2)");
  header.erase(header.size() - 2, 1);  // one space less
  header[8] = static_cast<char>(header.size() - 10);
  EXPECT_THAT(Gather(*Opened(Source(header + kData, kNpyLabels, 3)), {0}).features,
              testing::ElementsAre(0.5F, -1.F));
}

TEST_F(NpyTest, AcceptsEveryHeaderSpelling) {
  for (const std::string_view text :
       {"{'shape': (3, 2), 'fortran_order': False, 'descr': '<f4'}",
        "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(3,2,)}",
        "  { 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 3 , 2 ) , } "}) {
    EXPECT_EQ(Opened(Source(NpyHeader(text) + kData, kNpyLabels, 3))->size(), 3);
  }
}

TEST_F(NpyTest, RefusesBadHeaders) {
  const std::string many = "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)";
  const std::pair<std::string, std::string> cases[] = {
      {"", "truncated"},
      {"\x93NUM", "found 4"},
      {"PK\3\4 a zip file",
       "not an NPY file: expected it to begin with \\x93NUMPY; this looks "
       "like an .npz file: save each array by itself with numpy.save"},
      {"1.5,2\n3,4\n", "this looks like text: a table of numbers with commas is data of csv {}"},
      {"\x89PNG\r\n", "begin with \\x93NUMPY"},
      {std::string("\x93NUMPY\4\0\x10\0", 10), "found 4.0"},
      {std::string("\x93NUMPY\1\1\x10\0", 10), "found 1.1"},
      {std::string("\x93NUMPY\1\0\x10", 9), "at least 10"},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12), "found 4294967295"},
      {std::string("\x93NUMPY\1\0\xff\xff", 10) + kData, "expected at least 65545"},
      {NpyHeader("") + kData, "expected '{'"},
      {NpyHeader("{}") + kData, "the key 'descr'"},
      {NpyHeader("{'descr': '<f4', 'shape': (3, 2)}") + kData, "'fortran_order'"},
      {NpyHeader("{'descr': '<f4', 'descr': '<f4', 'shape': (3, 2)}") + kData, "each once"},
      {NpyHeader("{'descr': '<f4', 'colour': 1, 'shape': (3, 2)}") + kData, "each once"},
      {NpyHeader("{'descr': '<f4' 'shape': (3, 2)}") + kData, "expected ','"},
      {NpyHeader("{'descr': [('a', '<f4')], 'shape': (3, 2)}") + kData, "found \"[('a'"},
      {NpyHeader("{'descr': '<f\\4', 'shape': (3, 2)}") + kData, "without escapes"},
      {NpyHeader("{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 2)}") + kData, "True or False"},
      {NpyHeader("{'descr': '<f4', 'fortran_order': Trie, }") + kData, "True or False"},
      {NpyHeader("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }") + kData,
       "ascontiguousarray"},
      {Head(">f4", "(3, 2)") + kData,
       "found '>f4'; save array.astype(array.dtype.newbyteorder('<'))"},
      {Head(">u2", "(3, 2)") + kData, "found '>u2'; save array.astype(array.dtype.newbyteorder("},
      {Head(">f2", "(3, 2)") + kData, "found '>f2'; save array.astype('float32')"},
      {Head("<f2", "(3, 2)") + kData, "found '<f2'; save array.astype('float32')"},
      {Head("|b1", "(3, 2)") + kData, "found '|b1'; save array.astype('uint8')"},
      {Head("|O", "(3, 2)") + kData,
       "found '|O'; save for labels numpy.unique(array, "
       "return_inverse=True)[1], for numbers array.astype("},
      {Head("<U1", "(3, 2)") + kData, "found '<U1'; save for labels numpy.unique(array, "},
      {Head("<c8", "(3, 2)") + kData, "found '<c8'"},
      {Head("<f4", "(3)") + kData, "expected ','"},
      {Head("<f4", "(-3, 2)") + kData, "a dimension"},
      {Head("<f4", "(3L, 2L)") + kData, "expected ','"},
      {Head("<f4", "(,)") + kData, "a dimension"},
      {Head("<f4", "(99999999999999999999, 2)") + kData, "fits 63 bits"},
      {Head("<f4", "(9223372036854775807, 2)") + kData, "does not fit 63 bits"},
      {Head("<f4", many) + kData, "at most 32"},
      {NpyHeader(NpyDictionary("<f4", "(3, 2)") + "x") + kData, "the line end"},
      {NpyHeader(NpyDictionary("<f4", "(3, 2)") + "\n") + kData, "the line end"},
      {Head("<f4", "(3, 3)") + kData, "expected 36"},
      {kFeatures + "x", "found 25"},
      {Head("<f4", "(6,)") + kData, "found shape [6]"},
      {Head("<f4", "(0, 2)"), "[0, 2]"},
      {Head("<i4", "(3, 2)") + kData,
       "integers up to 16 bits, found i32; save array.astype('float32')"},
  };
  for (const auto& [bytes, part] : cases) {
    EXPECT_THAT(Refused(ErrorKind::kData, Source(bytes, kNpyLabels, 3)),
                AllOf(HasSubstr("features"), HasSubstr(part)));
  }
  for (std::size_t length = 0; length < kFeatures.size(); ++length) {
    (void)Refused(ErrorKind::kData, Source(kFeatures.substr(0, length), kNpyLabels, 3));
  }
}

TEST_F(NpyTest, RefusesMismatchedTargets) {
  const auto message = [&](const std::string& targets, std::int64_t classes) {
    return Refused(ErrorKind::kData, Source(kFeatures, targets, classes));
  };
  const auto labels = [](std::int64_t third) {
    return Head("<i8", "(3,)") + Values<std::int64_t>({0, 1, third});
  };
  EXPECT_THAT(message(labels(3), 3), AllOf(HasSubstr("[0, 3)"), HasSubstr("found 3")));
  EXPECT_THAT(message(labels(-1), 3), HasSubstr("found -1"));
  EXPECT_THAT(message(labels((std::int64_t{1} << 32) + 1), 3), HasSubstr("found 4294967297"));
  EXPECT_THAT(message(labels(1), std::int64_t{1} << 40), HasSubstr("2147483647"));
  EXPECT_THAT(message(labels(1), 0), HasSubstr("expected f32 targets"));
  EXPECT_THAT(message(kFeatures, 3), HasSubstr("expected labels of shape"));
  EXPECT_THAT(message(Head("<i8", "(3, 1)") + Values<std::int64_t>({0, 1, 2}), 3),
              HasSubstr("array.ravel()"));
  EXPECT_THAT(message(Head("<i8", "(3, 3)") + Values<std::int64_t>({0, 1, 0, 1, 0, 0, 0, 0, 1}), 3),
              HasSubstr("array.argmax(1)"));
  EXPECT_THAT(message(Head("<f4", "(3,)") + Values<float>({1, 2, 3}), 3),
              AllOf(HasSubstr("expected integer labels"), HasSubstr("astype('int64')")));
  EXPECT_THAT(message(Head("|i1", "(3,)") + "\1\377\1", 3), HasSubstr("found -1 for sample 1"));
  EXPECT_THAT(message(Head("<u8", "(3,)") + Values<std::uint64_t>({0, 1, 1ULL << 63}), 3),
              HasSubstr("found 9223372036854775808"));
  EXPECT_THAT(message(Head("<f4", "()") + Values<float>({1}), 0),
              AllOf(HasSubstr("expected 3"), HasSubstr("shape []")));
  EXPECT_THAT(message(Head("<f4", "(3, 0)"), 0), HasSubstr("[3, 0]"));
  EXPECT_THAT(message(Head("<i8", "(2,)") + Values<std::int64_t>({0, 1}), 3),
              AllOf(HasSubstr("expected 3"), HasSubstr("found 2")));
}

// The current folder first, then that of the job.
TEST_F(NpyTest, RelativePathsStartAtJobFolder) {
  const NpySpec absolute = Source(kFeatures, kNpyLabels, 3);
  const auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  Job job;
  job.data.train = NpySpec{name(absolute.features), name(absolute.targets), 3};
  EXPECT_THAT(OpenTrainingData(job), IsError(ErrorKind::kIo, name(absolute.features),
                                             "in the current folder /", "No such file"));
  job.data.train = NpySpec{"~/x.npy", name(absolute.targets), 3};
  EXPECT_THAT(OpenTrainingData(job),
              HasMessage(HasSubstr("; ~ is not expanded: write the full path")));
  job.data.train = NpySpec{name(absolute.features), name(absolute.targets), 3};
  job.folder = folder_.Path("no-such-folder");
  EXPECT_THAT(OpenTrainingData(job), HasMessage(HasSubstr("or in the job's folder " + job.folder)));
  job.folder = absolute.features.substr(0, absolute.features.rfind('/'));
  const auto opened = ValueOrThrow(OpenTrainingData(job));
  EXPECT_EQ(opened.train->size(), 3);
}

TEST_F(NpyTest, RefusesMissingFiles) {
  const NpySpec good = Source(kFeatures, kNpyLabels, 3);
  EXPECT_THAT(Refused(ErrorKind::kIo, NpySpec{folder_.Path("no"), good.targets, 3}),
              HasSubstr("No such file"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, NpySpec{good.features, good.targets, -3}),
              HasSubstr("-3"));
}

}  // namespace
}  // namespace gaccd
