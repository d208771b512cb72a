#include "daemon/device/cuda/matmul_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/base/strings.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::Field;
using Source = MatmulChoices::Source;

MatmulChoicesKey Key() {
  return {.gpu_name = "NVIDIA H200",
          .compute_capability = 90,
          .multiprocessors = 132,
          .cublaslt_version = 130100,
          .driver_version = 13000};
}

MatmulChoice Choice(std::int64_t m, unsigned char fill) {
  MatmulChoice choice{.spec = {.m = m, .n = 512, .k = 784, .transpose_b = true, .bias = true},
                      .microseconds = 3.25};
  std::memset(&choice.algorithm, fill, sizeof(choice.algorithm));
  return choice;
}

bool SameAlgorithm(const MatmulChoice& a, const MatmulChoice& b) {
  return std::memcmp(&a.algorithm, &b.algorithm, sizeof(a.algorithm)) == 0;
}

class MatmulChoicesTest : public ::testing::Test {
 protected:
  MatmulChoicesTest() { std::filesystem::remove_all(parent_); }
  ~MatmulChoicesTest() override { std::filesystem::remove_all(parent_); }

  std::string File() { return MatmulChoices(folder_, Key()).path(); }
  std::string Read() {
    std::ostringstream text;
    text << std::ifstream(File()).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(File()) << text;
  }
  void Keep(std::int64_t m, unsigned char fill) {
    MatmulChoices choices(folder_, Key());
    choices.Add(Choice(m, fill), Source::kTimed);
    choices.Save();
    EXPECT_THAT(choices.DrainNotes(), IsEmpty());
  }

  const std::string parent_ = StrCat(::testing::TempDir(), "gaccd-choices-", getpid());
  const std::string folder_ = parent_ + "/made/when/needed";
};

TEST_F(MatmulChoicesTest, RoundTrips) {
  Keep(32, 0xa5);
  const MatmulChoices again(folder_, Key());
  const MatmulChoice* const kept = again.FindKept(Choice(32, 0).spec);
  ASSERT_NE(kept, nullptr);
  EXPECT_TRUE(SameAlgorithm(*kept, Choice(32, 0xa5)));
  EXPECT_DOUBLE_EQ(kept->microseconds, 3.25);
  EXPECT_EQ(again.Find(Choice(32, 0).spec), nullptr);  // has not run in this process
  EXPECT_EQ(again.FindKept(Choice(33, 0).spec), nullptr);
}

TEST_F(MatmulChoicesTest, KeepsEveryFieldOfSpec) {
  std::vector<MatmulChoice> choices;
  for (unsigned bits = 0; bits < 64; ++bits) {
    MatmulChoice choice{.spec = {.m = 1 + bits, .n = 7, .k = std::int64_t{1} << 33}};
    choice.spec.transpose_a = (bits & 1U) != 0;
    choice.spec.transpose_b = (bits & 2U) != 0;
    choice.spec.ab = (bits & 4U) != 0 ? DType::kBF16 : DType::kF32;
    const bool epilogue = (bits & 8U) != 0;
    choice.spec.c = epilogue && (bits & 16U) != 0 ? DType::kBF16 : DType::kF32;
    choice.spec.bias = epilogue;
    choice.spec.relu = epilogue && (bits & 32U) != 0;
    choice.spec.accumulate = !epilogue && (bits & 16U) != 0;
    choice.spec.column_sums = !epilogue && choice.spec.transpose_a && (bits & 32U) != 0;
    choice.spec.column_sums_of_b =
        !epilogue && !choice.spec.transpose_b && !choice.spec.column_sums && (bits & 32U) != 0;
    choice.spec.gelu = choice.spec.c == DType::kBF16 && !choice.spec.relu
                           ? static_cast<MatmulGelu>(bits % 3)
                           : MatmulGelu::kNone;
    choice.spec.n = choice.spec.has_aux() ? 8 : 7;
    choice.spec.multiprocessors = static_cast<int>(bits);
    choice.spec.stride_a = bits % 3 == 0 ? 0 : std::int64_t{1} << 34;
    choice.spec.stride_c = bits % 5 == 0 ? 0 : 8 + bits;
    choice.separate_microseconds = bits;
    choice.microseconds = 1e-3;
    choices.push_back(choice);
  }
  const auto parsed = ValueOrThrow(ParseMatmulChoices(ToText(Key(), choices), Key()));
  ASSERT_EQ(parsed.size(), choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(parsed[i].spec, choices[i].spec);
    EXPECT_EQ(parsed[i].separate_microseconds, choices[i].separate_microseconds);
  }
}

TEST_F(MatmulChoicesTest, WritesNothingWithoutFolder) {
  MatmulChoices choices("", Key());
  choices.Add(Choice(32, 1), Source::kTimed);
  choices.Save();
  EXPECT_EQ(choices.path(), "");
  EXPECT_NE(choices.Find(Choice(32, 1).spec), nullptr);
  EXPECT_THAT(choices.DrainNotes(), IsEmpty());
}

TEST_F(MatmulChoicesTest, WritesOnlyTimedChoices) {
  {
    MatmulChoices choices(folder_, Key());
    choices.Add({.spec = Choice(32, 1).spec}, Source::kUntimed);
    choices.Add(Choice(33, 1), Source::kKept);
    EXPECT_EQ(choices.timed(), 0);
  }
  EXPECT_FALSE(std::filesystem::exists(File()));
}

TEST_F(MatmulChoicesTest, AddsEpilogueAlternativeToKeptChoice) {
  Keep(32, 0xa5);
  {
    MatmulChoices choices(folder_, Key());
    choices.Add(*choices.FindKept(Choice(32, 0).spec), Source::kKept);
    choices.SetSeparate(Choice(32, 0).spec, 7.5);
    EXPECT_EQ(choices.Find(Choice(32, 0).spec)->separate_microseconds, 7.5);
  }
  const MatmulChoices again(folder_, Key());
  EXPECT_EQ(again.FindKept(Choice(32, 0).spec)->separate_microseconds, 7.5);
  EXPECT_EQ(again.FindKept(Choice(32, 0).spec)->microseconds, 3.25);
}

TEST_F(MatmulChoicesTest, DestructorSaves) {
  { MatmulChoices(folder_, Key()).Add(Choice(32, 1), Source::kTimed); }
  EXPECT_NE(MatmulChoices(folder_, Key()).FindKept(Choice(32, 1).spec), nullptr);
}

TEST_F(MatmulChoicesTest, KeepsChoicesOfOthers) {
  MatmulChoices early(folder_, Key());
  Keep(33, 2);  // another process, after `early` has read
  early.Add(Choice(32, 1), Source::kTimed);
  early.Save();
  const MatmulChoices both(folder_, Key());
  EXPECT_NE(both.FindKept(Choice(32, 1).spec), nullptr);
  EXPECT_NE(both.FindKept(Choice(33, 2).spec), nullptr);
}

TEST_F(MatmulChoicesTest, FileDependsOnGpuDriverAndLibrary) {
  Keep(32, 1);
  for (const auto change : {+[](MatmulChoicesKey* k) { k->gpu_name = "NVIDIA H100"; },
                            +[](MatmulChoicesKey* k) { k->compute_capability = 80; },
                            +[](MatmulChoicesKey* k) { k->multiprocessors = 114; },
                            +[](MatmulChoicesKey* k) { k->cublaslt_version = 130200; },
                            +[](MatmulChoicesKey* k) { k->driver_version = 13010; },
                            +[](MatmulChoicesKey* k) { k->tf32 = true; }}) {
    MatmulChoicesKey other = Key();
    change(&other);
    MatmulChoices choices(folder_, other);
    EXPECT_EQ(choices.FindKept(Choice(32, 1).spec), nullptr);
    EXPECT_NE(choices.path(), File());
    // Its text under our name: foreign, and said so.
    Write(ToText(other, {Choice(32, 1)}));
    MatmulChoices foreign(folder_, Key());
    EXPECT_EQ(foreign.FindKept(Choice(32, 1).spec), nullptr);
    EXPECT_THAT(foreign.DrainNotes(), Contains(HasSubstr("not for this GPU")));
  }
}

// Whatever one byte becomes, and wherever the file ends: it is left unread.
TEST_F(MatmulChoicesTest, DetectsDamage) {
  const std::string good = ToText(Key(), {Choice(32, 0xa5), Choice(33, 0x5a)});
  ASSERT_TRUE(ParseMatmulChoices(good, Key()).ok());
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(ParseMatmulChoices(good.substr(0, i), Key()).ok()) << "cut at " << i;
    for (const int bit : {0, 1, 4, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(ParseMatmulChoices(bad, Key()).ok()) << "byte " << i << " bit " << bit;
    }
  }
  EXPECT_FALSE(ParseMatmulChoices(good + "x", Key()).ok());
  EXPECT_FALSE(ParseMatmulChoices(good + good, Key()).ok());
}

TEST_F(MatmulChoicesTest, ReportsAndReplacesDamagedFile) {
  for (const std::string& text :
       {std::string(), std::string("rubbish"), std::string(3 << 20, '1'), std::string(100, '\0')}) {
    Write(text);
    MatmulChoices choices(folder_, Key());
    EXPECT_THAT(choices.DrainNotes(), Contains(HasSubstr(choices.path())));
    choices.Add(Choice(32, 1), Source::kTimed);
    choices.Save();
    EXPECT_NE(MatmulChoices(folder_, Key()).FindKept(Choice(32, 1).spec), nullptr);
  }
}

TEST_F(MatmulChoicesTest, ReportsUnwritableFolder) {
  MatmulChoices choices("/proc/gaccd", Key());
  choices.Add(Choice(32, 1), Source::kTimed);
  choices.Save();
  EXPECT_THAT(choices.DrainNotes(), Contains(HasSubstr("not cached")));
}

// At every moment the file is whole and has the choice that was there before. Two writers at the
// same moment may lose each other's choices, so the number at the end is not fixed.
TEST_F(MatmulChoicesTest, ManyProcessesWriteConcurrently) {
  constexpr int kProcesses = 8;
  Keep(1000, 1);
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool whole = true;
      for (int i = 0; i < 50; ++i) {
        MatmulChoices choices(folder_, Key());
        whole = whole && choices.DrainNotes().empty() &&
                choices.FindKept(Choice(1000, 1).spec) != nullptr;
        choices.Add(Choice(1 + p * 100 + i, 2), Source::kTimed);
        choices.Save();
        whole = whole && choices.DrainNotes().empty();
      }
      _exit(whole ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
  const auto last = ValueOrThrow(ParseMatmulChoices(Read(), Key()));
  EXPECT_GE(last.size(), 2U);
  EXPECT_THAT(last, Contains(Field(&MatmulChoice::spec, Choice(1000, 1).spec)));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1U) << "temporary files are left";
}

}  // namespace
}  // namespace gaccd
