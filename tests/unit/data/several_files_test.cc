// Several files as one set, and the data.json next to arrays that tools/prepare made.
#include "daemon/data/several_files.h"

#include <span>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

std::string IntegersFile(std::string_view descr, std::string_view shape,
                         const std::vector<std::int32_t>& values) {
  return NpyHeader(NpyDictionary(descr, shape)) + Raw(std::span<const std::int32_t>(values));
}

class SeveralFilesTest : public testing::Test {
 protected:
  // Part p: `samples` texts of two tokens, 10 p + i and i, with the lengths 1 + i % 2.
  void WritePart(const std::string& name, std::int32_t first, std::int32_t samples) {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> lengths;
    for (std::int32_t i = 0; i < samples; ++i) {
      tokens.insert(tokens.end(), {first + i, i});
      lengths.push_back(1 + i % 2);
    }
    (void)folder_.Write(name + ".tokens.npy",
                        IntegersFile("<i4", StrCat("(", samples, ", 2)"), tokens));
    (void)folder_.Write(name + ".lengths.npy",
                        IntegersFile("<i4", StrCat("(", samples, ",)"), lengths));
  }
  TokensSpec Source(const std::string& pattern = "part-*") const {
    return {.tokens = StrCat(folder_.path(), "/", pattern, ".tokens.npy"),
            .lengths = StrCat(folder_.path(), "/", pattern, ".lengths.npy"),
            .vocabulary = 100};
  }
  static std::vector<std::int32_t> Tokens(const Dataset& data,
                                          const std::vector<std::int64_t>& samples) {
    BatchMemory memory(data.spec(), std::ssize(samples));
    data.Gather(samples, memory.view());
    return Values<std::int32_t>(data.spec(), memory, "tokens");
  }
  static Result<std::unique_ptr<Dataset>> Open(const SourceSpec& source,
                                               const BadRecordRules& rules = {}) {
    return OpenDataset(source, {}, rules);
  }

  static std::string OpenError(const SourceSpec& source, const BadRecordRules& rules = {}) {
    const auto opened = Open(source, rules);
    return opened.ok() ? "" : std::string(opened.status().message());
  }

  TempFolder folder_;
};

TEST_F(SeveralFilesTest, SamplesContinueAcrossParts) {
  WritePart("part-b", 20, 2);  // in the order of the names, not of writing
  WritePart("part-a", 10, 3);
  WritePart("part-c", 30, 1);
  const auto data = ValueOrThrow(Open(Source()));
  EXPECT_EQ(data->size(), 6);
  EXPECT_THAT(Tokens(*data, {0, 1, 2, 3, 4, 5}),
              ElementsAre(10, 0, 11, 1, 12, 2, 20, 0, 21, 1, 30, 0));
  EXPECT_THAT(Tokens(*data, {5, 0, 4, 3, 1}), ElementsAre(30, 0, 10, 0, 21, 1, 20, 0, 11, 1));
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 6; ++i) lengths.push_back(data->Length(i));
  EXPECT_THAT(lengths, ElementsAre(1, 2, 1, 1, 2, 1));
  EXPECT_TRUE(data->CheckUnchanged().ok());
}

TEST_F(SeveralFilesTest, DetectsChangeOfAnyPart) {
  for (const std::string part : {"part-a", "part-b", "part-c"}) {
    for (const char* name : {"part-a", "part-b", "part-c"}) WritePart(name, 10, 2);
    const auto data = ValueOrThrow(Open(Source()));
    WritePart(part, 10, 3);
    EXPECT_THAT(data->CheckUnchanged(), IsError(ErrorKind::kData, part));
  }
}

TEST_F(SeveralFilesTest, ReadsManyRowsInChunks) {
  WritePart("part-a", 0, 90);
  WritePart("part-b", 5, 3);
  const auto data = ValueOrThrow(Open(Source()));
  std::vector<std::int64_t> samples;
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 0; i < 93; ++i) {
    samples.push_back(92 - i);
    const auto own = static_cast<std::int32_t>(92 - i >= 90 ? 2 - i : 92 - i);
    expected.insert(expected.end(), {92 - i >= 90 ? 5 + own : own, own});
  }
  EXPECT_EQ(Tokens(*data, samples), expected);
}

TEST_F(SeveralFilesTest, DamagedRecordsShareQuota) {
  WritePart("part-a", 98, 3);  // the third token is no token
  WritePart("part-b", 97, 4);  // so is the fourth
  const BadRecordRules one{.policy = OnBadRecord::kSkip, .quota = 1};
  EXPECT_THAT(OpenError(Source(), one), HasSubstr("at most 1 may be skipped"));
  const auto data = ValueOrThrow(Open(Source(), {.policy = OnBadRecord::kSkip, .quota = 2}));
  ASSERT_EQ(data->bad_records().size(), 2U);
  EXPECT_EQ(data->bad_records()[1].sample, 3 + 3);
  EXPECT_GE(data->bad_records()[1].replacement, 3);
}

TEST_F(SeveralFilesTest, RefusesIncompatibleFiles) {
  const auto refused = [&](const TokensSpec& source) { return OpenError(source); };
  EXPECT_THAT(refused(Source()), HasSubstr("no file is called"));
  WritePart("part-a", 10, 3);
  WritePart("part-b", 20, 2);
  TokensSpec source = Source();
  source.lengths = StrCat(folder_.path(), "/part-a.lengths.npy");
  EXPECT_THAT(refused(source), HasSubstr("expected one '*', in the name of the file"));
  EXPECT_THAT(refused(Source("*-*")), HasSubstr("expected one '*'"));
  EXPECT_THAT(refused(Source("none/part-*")),  // of an absolute path
              AllOf(HasSubstr("no file is called"), Not(HasSubstr("in the current folder"))));
  EXPECT_THAT(refused(Source("p*t/part")), HasSubstr("found it in the name of a folder"));
  (void)folder_.Write("part-c.lengths.npy", IntegersFile("<i4", "(1,)", {1}));
  EXPECT_THAT(refused(Source()), HasSubstr("expected 2 files, as many as"));
  (void)folder_.Write("part-d.tokens.npy", IntegersFile("<i4", "(1, 2)", {1, 2}));
  EXPECT_THAT(refused(Source()), AllOf(HasSubstr("part-*.lengths.npy' with 'd'"),
                                       HasSubstr("part-d.tokens.npy', found none")));
  (void)folder_.Write("part-d.lengths.npy", IntegersFile("<i4", "(1,)", {1}));
  (void)folder_.Write("part-c.tokens.npy", IntegersFile("<i4", "(1, 3)", {1, 2, 3}));
  EXPECT_THAT(refused(Source()), HasSubstr("file 3 of 4: expected samples of tokens i32 [2]"));
}

TEST_F(SeveralFilesTest, AreRelativeToJobFolder) {
  WritePart("part-a", 10, 3);
  const TokensSpec source{.tokens = "part-*.tokens.npy", .lengths = {}, .vocabulary = 100};
  EXPECT_FALSE(OpenDataset(source, {}).ok());
  const auto data = ValueOrThrow(OpenDataset(source, {}, {}, nullptr, folder_.path()));
  EXPECT_EQ(data->size(), 3);
}

TEST_F(SeveralFilesTest, FolderMayHaveStarInItsName) {
  ASSERT_OK(MakeFolders(folder_.Path("a*b"), 0700));
  WritePart("a*b/part-a", 10, 3);
  WritePart("a*b/part-b", 20, 2);
  EXPECT_EQ(ValueOrThrow(Open(Source("a*b/part-a")))->size(), 3);
  EXPECT_EQ(ValueOrThrow(Open(Source("a*b/part-*")))->size(), 5);
  const TokensSpec source{.tokens = "a*b/part-b.tokens.npy", .lengths = {}, .vocabulary = 100};
  EXPECT_EQ(ValueOrThrow(OpenDataset(source, {}, {}, nullptr, folder_.path()))->size(), 2);
  EXPECT_THAT(OpenError(Source("a*/part-a")), HasSubstr("found it in the name of a folder"));
}

TEST_F(SeveralFilesTest, ReportsConversionsOfEveryPart) {
  WritePart("part-a", 10, 3);
  EXPECT_EQ((*Open(Source()))->conversions(), "");
  const std::string shorts = NpyHeader(NpyDictionary("<u2", "(3, 2)")) + std::string(12, '\0');
  for (const char* part : {"part-b", "part-c"}) {
    WritePart(part, 10, 3);
    (void)folder_.Write(StrCat(part, ".tokens.npy"), shorts);
  }
  EXPECT_EQ((*Open(Source()))->conversions(), "tokens u16 -> i32");
  const NpySpec rows{.features = folder_.Write(
                         "x", NpyHeader(NpyDictionary("<f8", "(2, 1)")) + std::string(16, '\0')),
                     .targets = folder_.Write(
                         "y", NpyHeader(NpyDictionary("<i8", "(2,)")) + std::string(16, '\0')),
                     .classes = 2};
  EXPECT_EQ((*Open(rows))->conversions(), "features f64 -> f32, labels i64 -> i32");
}

// Labels for every token may count beyond the length of a text: such data is never cut.
TEST_F(SeveralFilesTest, PatternsMatchNoHiddenFiles) {
  WritePart("part-a", 10, 3);
  WritePart(".part-b", 20, 3);
  EXPECT_EQ(ValueOrThrow(Open(Source("*")))->size(), 3);
  EXPECT_EQ(ValueOrThrow(Open(Source(".part-*")))->size(), 3);
}

TEST_F(SeveralFilesTest, EvaluatesMaskedDataOnLabelledTokens) {
  WritePart("part-a", 10, 3);
  Job job;
  TokensSpec labelled = Source();
  labelled.labels = folder_.Write("labels", IntegersFile("<i4", "(3, 2)", {1, 2, 3, 4, 5, 6}));
  labelled.tokens = StrCat(folder_.path(), "/part-a.tokens.npy");
  labelled.lengths = StrCat(folder_.path(), "/part-a.lengths.npy");
  TokensSpec masked = Source();
  masked.masked = MaskedTokensSpec{.mask_token = 4};
  job.data.train = masked;
  job.data.eval = labelled;
  ASSERT_OK(OpenTrainingData(job));
  job.data.train = labelled;
  job.data.eval = Source();
  EXPECT_THAT(OpenTrainingData(job),
              HasMessage(HasSubstr("differs from the training data: expected samples of tokens")));
}

TEST_F(SeveralFilesTest, ArraysUseTheirDataJson) {
  WritePart("part-a", 10, 3);
  const auto json = [&](const std::string& rest, int vocabulary = 100) {
    (void)folder_.Write(
        "data.json",
        StrCat("{\"vocabulary\": ", vocabulary,
               ", \"train\": {\"arrays\": {\"tokens\": {\"file\": \"part-a.tokens.npy\"", rest,
               "}}}}"));
    return OpenError(Source("part-a"));
  };
  EXPECT_EQ(json(""), "");
  EXPECT_EQ(json(R"(, "shape": [3, 2], "dtype": "int32")"), "");
  EXPECT_THAT(json(R"(, "shape": [4, 2])"), HasSubstr("expected shape [4,2], found [3,2]"));
  EXPECT_THAT(json(R"(, "dtype": "uint16")"),
              HasSubstr("expected dtype \"uint16\", found \"int32\""));
  EXPECT_THAT(json("", 101), HasSubstr("has a vocabulary of 101, the job one of 100"));
  EXPECT_EQ(json("", 99), "") << "a table may be larger";
  EXPECT_THAT(json(R"(, "sha256": "00ff")"), HasSubstr("expected sha256 \"00ff\", found \""));
  Sha256 digest;
  const std::string bytes = ReadStart(Source("part-a").tokens, 1000).value();
  digest.Update(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(json(StrCat(R"(, "sha256": ")", Hex(digest.Finish()), "\"")), "");
  for (const char* other : {R"({"train": [1]})", R"({"train": {"arrays": 3}})", "{}",
                            R"({"eval": {"arrays": ["x", {"file": "part-a.tokens.npy"}]}})",
                            R"({"eval": {"arrays": {"a": "x", "b": {"file": 1}}}})"}) {
    (void)folder_.Write("data.json", other);
    EXPECT_EQ(OpenError(Source("part-a")), "") << "it says nothing of these arrays: " << other;
  }
  for (const char* other : {"[]", "{\"a\": 1}\n{\"a\": 2}\n", "no JSON"}) {
    (void)folder_.Write("data.json", other);
    EXPECT_EQ(OpenError(Source("part-a")), "") << "it does not name these arrays: " << other;
  }
  (void)folder_.Write("data.json", R"(["part-a.tokens.npy"])");
  EXPECT_THAT(OpenError(Source("part-a")), HasSubstr("expected a JSON object"));
  const std::string deep = StrCat(std::string(200'000, '['), std::string(200'000, ']'));
  (void)folder_.Write("data.json",
                      StrCat(R"({"train": {"arrays": {"tokens": {"file": "part-a.tokens.npy", )",
                             R"("shape": )", deep, "}}}}"));
  EXPECT_THAT(OpenError(Source("part-a")), HasSubstr("expected shape "));
}

}  // namespace
}  // namespace gaccd
