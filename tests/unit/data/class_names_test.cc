// Names of classes next to data and weights: the same number is the same class, or an error.
#include "daemon/data/class_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/data/prepared.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

class ClassNamesTest : public testing::Test {
 protected:
  // A folder as tools/prepare makes it; `classes`: JSON.
  void Prepare(const std::string& name, const std::string& classes) {
    ASSERT_TRUE(MakeFolders(folder_.Path(name), 0700).ok());
    for (const char* file : {"/tokens.npy", "/labels.npy", "/part-0.npy"}) {
      (void)folder_.Write(name + file, "");
    }
    (void)folder_.Write(name + "/data.json",
                        StrCat(R"({"classes":)", classes, R"(,"train":{"arrays":{)",
                               R"("tokens":{"file":"tokens.npy"},"labels":{"file":"labels.npy"},)",
                               R"("more":{"file":"part-0.npy"}}}})"));
  }
  [[nodiscard]] TokensSpec In(const std::string& name) const {
    return {.tokens = folder_.Path(name + "/tokens.npy"),
            .labels = folder_.Path(name + "/labels.npy")};
  }
  [[nodiscard]] Result<ClassNames> Read(const std::string& train, const std::string& eval) const {
    Job job;
    job.data.train = In(train);
    job.data.eval = In(eval);
    return ReadClassNames(job);
  }
  TempFolder folder_;
};

TEST_F(ClassNamesTest, TrainAndEvalClassNumbersAgree) {
  Prepare("a", R"(["neg","pos"])");
  Prepare("b", R"(["pos","neg"])");
  Prepare("few", R"(["neg"])");
  Prepare("none", "[]");
  EXPECT_THAT(Read("a", "a")->names, ElementsAre("neg", "pos"));
  EXPECT_THAT(Read("a", "none")->names, ElementsAre("neg", "pos"));
  EXPECT_THAT(Read("a", "few")->names, ElementsAre("neg", "pos"));  // it lacks a class
  EXPECT_THAT(Read("few", "a")->names, ElementsAre("neg", "pos"));
  EXPECT_THAT(Read("none", "nowhere")->names, IsEmpty());
  for (const auto& [train, eval] : {std::pair("a", "b"), std::pair("few", "b")}) {
    EXPECT_THAT(Read(train, eval).status(), IsError(ErrorKind::kData, "class 0"));
    EXPECT_THAT(Read(train, eval).status(),
                HasMessage(AllOf(HasSubstr("'neg'"), HasSubstr("'pos'"),
                                 HasSubstr(folder_.Path(StrCat(train, "/data.json"))),
                                 HasSubstr(folder_.Path(StrCat(eval, "/data.json"))))));
  }
}

TEST_F(ClassNamesTest, JobMayNameThemRelativeToItsFolder) {
  Prepare("job/a", R"(["neg","pos"])");
  Job job;
  job.folder = folder_.Path("job");
  job.data.train = TokensSpec{.tokens = "a/part-*.npy"};
  EXPECT_THAT(ReadClassNames(job)->names, ElementsAre("neg", "pos"));
  job.data.class_name = {"neg", "pos", "mixed"};
  EXPECT_THAT(ReadClassNames(job)->names, ElementsAre("neg", "pos", "mixed"));
  job.data.class_name = {"bad", "good"};
  EXPECT_THAT(ReadClassNames(job).status(), IsError(ErrorKind::kData, "data.class_name"));
}

TEST_F(ClassNamesTest, FolderNamesAreKeptInWeights) {
  for (const char* name : {"train/caf\xE9", "train/th\xC3\xA9"}) {
    ASSERT_OK(MakeFolders(folder_.Path(name), 0700));
  }
  Job job;
  job.data.train = ImagesSpec{.path = folder_.Path("train"), .classes = 2};
  const ClassNames found = ValueOrThrow(ReadClassNames(job));
  EXPECT_THAT(found.names, ElementsAre("caf\\xe9", "th\xC3\xA9")) << "Latin-1, UTF-8";
  const ClassNames kept = ReadWeightsClassNames("w", ClassMetadata(found.names));
  EXPECT_OK(CheckSameClasses(kept, found));
  job.data.class_name = kept.names;  // of a checkpoint
  EXPECT_EQ(ValueOrThrow(ReadClassNames(job)).names, found.names);
}

TEST_F(ClassNamesTest, FolderNamesThatDifferInBytesOutsideUtf8AreDifferent) {
  for (const char* name : {"train/\xE8", "train/\xE9", "eval/\xE7", "eval/\xE9"}) {
    ASSERT_OK(MakeFolders(folder_.Path(name), 0700));
  }
  Job job;
  job.data.train = ImagesSpec{.path = folder_.Path("train"), .classes = 2};
  EXPECT_THAT(ReadClassNames(job)->names, ElementsAre("\\xe8", "\\xe9"));
  job.data.eval = ImagesSpec{.path = folder_.Path("eval"), .classes = 2};
  EXPECT_THAT(ReadClassNames(job).status(), IsError(ErrorKind::kData, "class 0"));
}

TEST_F(ClassNamesTest, IgnoresDataJsonThatDoesNotNameTheFile) {
  const std::string text = R"({"classes":["a"],"eval":{"arrays":{"tokens":{"file":"x.npy"}}}})";
  EXPECT_THAT(PreparedClasses(text, "out/x.npy"), ElementsAre("a"));
  EXPECT_THAT(PreparedClasses(text, "out/y.npy"), IsEmpty());
  for (const char* other :
       {"", "[]", "{}", R"({"classes":[1],"eval":{"arrays":[{"file":"x.npy"}]}})",
        R"({"classes":{},"eval":{"arrays":[{"file":"x.npy"}]}})"}) {
    EXPECT_THAT(PreparedClasses(other, "x.npy"), IsEmpty()) << other;
  }
}

TEST_F(ClassNamesTest, ReadsThemFromWeightsMetadataOrConfig) {
  const std::string weights = folder_.Path("model.safetensors");
  EXPECT_THAT(ReadWeightsClassNames(weights, {}).names, IsEmpty());
  const std::vector<std::string> names = {"neg", "\xE5\xA5\xBD, \"ja\""};
  const auto read = ReadWeightsClassNames(weights, ClassMetadata(names));
  EXPECT_EQ(read.names, names);
  EXPECT_EQ(read.from, weights);
  EXPECT_THAT(ClassMetadata({}), IsEmpty());
  const auto config = [&](const std::string& labels) {
    (void)folder_.Write("config.json", StrCat(R"({"id2label":)", labels, "}"));
    return ReadWeightsClassNames(weights, {{"format", "pt"}}).names;
  };
  EXPECT_THAT(config(R"({"1":"pos","0":"neg"})"), ElementsAre("neg", "pos"));
  for (const char* other :
       {R"({"0":"LABEL_0","1":"LABEL_1"})", R"({"0":"a","2":"b"})", "{}", "[]", "{"}) {
    EXPECT_THAT(config(other), IsEmpty()) << other;
  }
}

// So that a made-up number is refused: the labels of data and weights have another order.
TEST_F(ClassNamesTest, NamesFirstDifference) {
  EXPECT_TRUE(CheckSameClasses({{"a", "b"}, "x"}, {{}, ""}).ok());
  EXPECT_TRUE(CheckSameClasses({{}, ""}, {{"a"}, "y"}).ok());
  EXPECT_THAT(CheckSameClasses({{"a", "b"}, "x"}, {{"a", "c"}, "y"}),
              IsError(ErrorKind::kData, "class 1 is 'b' in x, and 'c' in y"));
}

}  // namespace
}  // namespace gaccd
