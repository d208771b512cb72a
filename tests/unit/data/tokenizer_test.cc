// Vocabularies next to weights and data: the same tokens under the same ids, or an error.
#include "daemon/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

class TokenizerTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(MakeFolders(folder_.Path(name), 0700).ok());
    (void)folder_.Write(name + "/tokenizer.json", text);
  }
  void WriteVocabulary(const std::string& name, const std::string& vocabulary) {
    Write(name, StrCat(R"({"version":"1.0","model":{"vocab":)", vocabulary, "}}"));
  }
  [[nodiscard]] Status Check(const std::string& train, const std::string& eval,
                             const std::string& weights) const {
    Job job;
    job.data.train = StreamSpec{.path = folder_.Path(train + "/tokens.npy")};
    job.data.eval = TokensSpec{.tokens = folder_.Path(eval + "/tokens.npy")};
    return CheckTokenizers(job, weights.empty() ? "" : folder_.Path(weights + "/w.safetensors"));
  }
  TempFolder folder_;
};

TEST_F(TokenizerTest, SameIdsAreSameTokens) {
  WriteVocabulary("a", R"({"the":0,"and":1})");
  WriteVocabulary("b", R"({"and":1, "the":0})");
  WriteVocabulary("c", R"({"and":0,"the":1})");
  WriteVocabulary("d", R"({"and":1,"the":0,"of":2})");
  WriteVocabulary("e", R"({"and":1,"of":0})");
  EXPECT_TRUE(Check("a", "a", "b").ok());
  EXPECT_TRUE(Check("a", "b", "nowhere").ok());
  const std::string start =
      StrCat("the same ids are other tokens in '", folder_.Path("c/tokenizer.json"), "' than in '",
             folder_.Path("a/tokenizer.json"), "': ");
  using Names = std::array<const char*, 3>;
  for (const auto& [train, eval, weights] :
       {Names{"a", "a", "c"}, Names{"c", "c", "a"}, Names{"a", "c", "b"}, Names{"c", "a", ""}}) {
    EXPECT_THAT(Check(train, eval, weights),
                IsError(ErrorKind::kData, start + "expected 'and' as 1, found 0"));
  }
  EXPECT_THAT(Check("d", "d", "a"), IsError(ErrorKind::kData, "expected 2 tokens, found 3"));
  EXPECT_THAT(Check("e", "e", "a"), IsError(ErrorKind::kData, "expected 'the' as 0, found null"));
}

TEST_F(TokenizerTest, SameTextHasSameTokens) {
  const auto write = [&](const std::string& name, const std::string& parts) {
    Write(name, StrCat(R"({"model":{"vocab":{"the":0}})", parts, "}"));
  };
  const auto bert = [](const std::string& settings) {
    return StrCat(R"(,"normalizer":{"type":"BertNormalizer",)", settings, "}");
  };
  const auto differ = [&](const std::string& difference) {
    return IsError(
        ErrorKind::kData,
        StrCat("the same text has other tokens in '", folder_.Path("b/tokenizer.json"),
               "' than in '", folder_.Path("a/tokenizer.json"), "': expected the ", difference));
  };
  write("a", bert(R"("lowercase":true,"strip_accents":null,"clean_text":true)"));
  write("b", bert(R"("clean_text":true,"lowercase":true,"strip_accents":true)"));
  EXPECT_OK(Check("a", "a", "b")) << "accents go with the case";
  write("b", bert(R"("lowercase":false)"));
  EXPECT_THAT(Check("a", "a", "b"),
              differ("normalizer BertNormalizer with lowercase true, found false"));
  write("b", bert(R"("lowercase":true,"strip_accents":false)"));
  EXPECT_THAT(Check("a", "b", ""),
              differ("normalizer BertNormalizer with strip_accents true, found "
                     "false"));
  write("b", R"(,"normalizer":null)");
  EXPECT_THAT(Check("a", "b", ""), differ("normalizer BertNormalizer, found none"));
  write("a", "");
  EXPECT_OK(Check("a", "b", "")) << "null is none";
  write("a", R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]},"pre_tokenizer":
                {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true})");
  write("b", R"(,"normalizer":{"type":"NFC"},"pre_tokenizer":
                {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":true})");
  EXPECT_OK(Check("a", "b", "")) << "offsets are no tokens, and other versions spell out more";
  write("b", R"(,"normalizer":{"type":"NFC"},"pre_tokenizer":
                {"type":"ByteLevel","add_prefix_space":true})");
  EXPECT_THAT(Check("a", "b", ""),
              differ("pre_tokenizer ByteLevel with add_prefix_space false, found true"));
  write("b", R"(,"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":
                [{"type":"Whitespace"},{"type":"Digits"}]})");
  EXPECT_THAT(Check("a", "b", ""), differ("pre_tokenizer ByteLevel, found Whitespace, Digits"));
}

TEST_F(TokenizerTest, SeveralFilesInTheFolderOfTheJob) {
  WriteVocabulary("job/a", R"({"the":0,"and":1})");
  WriteVocabulary("job/b", R"({"and":0,"the":1})");
  (void)folder_.Write("job/a/part-0.npy", "");
  (void)folder_.Write("job/b/part-0.npy", "");
  Job job;
  job.folder = folder_.Path("job");
  job.data.train = StreamSpec{.path = "a/part-*.npy"};
  job.data.eval = StreamSpec{.path = "b/part-*.npy"};
  EXPECT_THAT(CheckTokenizers(job, ""), IsError(ErrorKind::kData, "expected 'and' as 1, found 0"));
  const Job anywhere = WithAbsolutePaths(job);
  EXPECT_EQ(std::get<StreamSpec>(anywhere.data.train).path, folder_.Path("job/a/part-*.npy"));
  // A folder may have a '*' in its name.
  WriteVocabulary("j*b/a", R"({"the":0})");
  job.folder = folder_.Path("j*b");
  job.data.train = StreamSpec{.path = "a/tokenizer.json"};
  job.data.eval = StreamSpec{.path = "a/none.npy"};
  const Job there = WithAbsolutePaths(job);
  EXPECT_EQ(std::get<StreamSpec>(there.data.train).path, folder_.Path("j*b/a/tokenizer.json"));
  EXPECT_EQ(std::get<StreamSpec>(*there.data.eval).path, "a/none.npy");
}

TEST_F(TokenizerTest, DoesNotReadSingleFile) {
  WriteVocabulary("good", R"({"the":0})");
  Write("bad", "no JSON");
  EXPECT_TRUE(Check("bad", "bad", "bad").ok());
  EXPECT_TRUE(Check("bad", "nowhere", "").ok());
  const std::string why = "bad/tokenizer.json: expected a JSON object with model.vocab";
  EXPECT_THAT(Check("bad", "good", "good"), IsError(ErrorKind::kData, why));
  Write("deep",
        R"({"model":{"vocab":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}}");
  EXPECT_THAT(Check("deep", "good", "good"), IsError(ErrorKind::kData, "levels deep"));
  Job images;
  images.data.train = IdxSpec{};
  EXPECT_TRUE(CheckTokenizers(images, folder_.Path("bad/w.safetensors")).ok());
}

}  // namespace
}  // namespace gaccd
