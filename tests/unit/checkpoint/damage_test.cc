// Any damage to a checkpoint is found, and an older generation is taken instead.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "collectives/base/strings.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

namespace fs = std::filesystem;

// tools/soak does more; formats_test changes every byte of both formats.
const int kDamages = std::getenv("GACCD_SOAK") != nullptr ? 10'000 : 500;

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void OverwriteFile(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// One random change to a file. Returns what it was, for the message.
std::string Damage(std::mt19937_64& random, const fs::path& path, const std::string& good) {
  const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  std::string bad = good;
  switch (draw(6)) {
    case 0: {
      const std::size_t at = draw(bad.size());
      bad[at] = static_cast<char>(bad[at] ^ (1 << draw(8)));
      OverwriteFile(path, bad);
      return StrCat("bit of byte ", at);
    }
    case 1: {
      const std::size_t size = draw(bad.size());
      bad.resize(size);
      OverwriteFile(path, bad);
      return StrCat("cut to ", size);
    }
    case 2:
      fs::remove(path);
      return "missing";
    case 3:
      OverwriteFile(path, bad + std::string(1 + draw(100), '\0'));
      return "longer";
    case 4: {
      const std::size_t at = draw(bad.size());
      const std::size_t size = std::min(bad.size() - at, 1 + draw(600));
      if (bad.substr(at, size) == std::string(size, '\0')) return Damage(random, path, good);
      bad.replace(at, size, size, '\0');
      OverwriteFile(path, bad);
      return StrCat("zeros from ", at, " for ", size);
    }
    default: {
      const std::size_t a = draw(bad.size());
      const std::size_t b = draw(bad.size());
      if (bad[a] == bad[b]) return Damage(random, path, good);
      std::swap(bad[a], bad[b]);
      OverwriteFile(path, bad);
      return StrCat("bytes ", a, " and ", b, " swapped");
    }
  }
}

TEST(DamageTest, DetectsTenThousandDamagesAndLoadsOlderGeneration) {
  const TempFolder folder;
  const SmallRun run{.parameter_bytes = 4 * 922, .optimizer_bytes = 2000};
  ASSERT_TRUE(SaveSteps(run, 2, {.folder = folder.Path("ckpt"), .block_bytes = 512}, {1, 2}).ok());
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(folder.Path("ckpt") + "/step-000000000002-e000001")) {
    files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 3u);
  std::sort(files.begin(), files.end());
  std::mt19937_64 random(20261120);
  const auto comm = MakeSingle();
  for (int i = 0; i < kDamages; ++i) {
    const fs::path& path = files[random() % files.size()];
    const std::string good = ReadAll(path);
    const std::string what = Damage(random, path, good);
    const auto outcome = LoadNewest(*comm, folder.Path("ckpt"), AcceptAll);
    ASSERT_TRUE(outcome.ok() && outcome->state) << outcome.status().message();
    ASSERT_EQ(outcome->state->generation.step, 1) << i << ": " << path << " " << what;
    ASSERT_TRUE(run.Matches(*outcome->state));
    ASSERT_EQ(outcome->refused.size(), 1u);
    OverwriteFile(path, good);
  }
  const auto outcome = LoadNewest(*comm, folder.Path("ckpt"), AcceptAll);
  EXPECT_EQ(outcome->state->generation.step, 2) << "undamaged again";
}

TEST(DamageTest, RefusesShardsOfTwoRuns) {
  const TempFolder one;
  const TempFolder two;
  const SmallRun run;
  ASSERT_TRUE(SaveSteps(run, 2, {.folder = one.Path("ckpt")}, {1}).ok());
  const SmallRun other{.parameter_bytes = run.parameter_bytes,
                       .optimizer_bytes = run.optimizer_bytes};
  ASSERT_TRUE(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
                GACCD_ASSIGN_OR_RETURN(auto writer, StartWriter(comm, {.folder = two.Path("ckpt")},
                                                                other.Identity(2), Me(), nullptr));
                const Bytes parameters = other.Parameters(99);
                const Bytes optimizer = other.Optimizer(99);
                GACCD_RETURN_IF_ERROR(writer->Save(
                    SmallRun().CursorAt(1), std::vector{HostSource("parameters", parameters),
                                                        HostSource("optimizer", optimizer)}));
                return writer->Finish();
              }).ok());
  // Same step, epoch, rank and sizes: only the digest in the manifest tells them apart.
  const std::string shard = "/step-000000000001-e000001/shard-00001-of-00002.bin";
  fs::copy_file(two.Path("ckpt") + shard, one.Path("ckpt") + shard,
                fs::copy_options::overwrite_existing);
  const auto comm = MakeSingle();
  const auto outcome = ValueOrThrow(LoadNewest(*comm, one.Path("ckpt"), AcceptAll));
  EXPECT_FALSE(outcome.state);
  ASSERT_EQ(outcome.refused.size(), 1u);
  EXPECT_THAT(outcome.refused[0], ::testing::HasSubstr("it is a shard of another checkpoint"));
}

// A copy under a newer name is whole but for its name, and would take the run back unseen.
TEST(DamageTest, RefusesRenamedGeneration) {
  const TempFolder folder;
  const SmallRun run;
  ASSERT_TRUE(SaveSteps(run, 2, {.folder = folder.Path("ckpt")}, {1, 2}).ok());
  const std::string old = folder.Path("ckpt") + "/step-000000000001-e000001";
  const auto comm = MakeSingle();
  for (const Generation& name : {Generation{1, 3, 0}, {2, 1, 0}, {1, 2, 1}}) {
    fs::copy(old, name.PathIn(folder.Path("ckpt")));
    const auto outcome = LoadNewest(*comm, folder.Path("ckpt"), AcceptAll);
    ASSERT_TRUE(outcome.ok() && outcome->state);
    EXPECT_EQ(outcome->state->generation.step, 2);
    ASSERT_EQ(outcome->refused.size(), 1u) << name.name();
    EXPECT_THAT(outcome->refused[0],
                ::testing::HasSubstr("its manifest belongs to step-000000000001-e000001"));
    EXPECT_THAT(VerifyGeneration(folder.Path("ckpt"), name),
                IsError(ErrorKind::kData, "its manifest"));
    fs::remove_all(name.PathIn(folder.Path("ckpt")));
  }
}

TEST(DamageTest, AllRanksLoadSameGenerationIfOneRankSeesDamage) {
  const TempFolder folder;
  const SmallRun run;
  ASSERT_TRUE(
      SaveSteps(run, 4, {.folder = folder.Path("ckpt"), .keep = {.newest = 9}}, {1, 2, 3}).ok());
  for (const char* path : {"/step-000000000003-e000001/shard-00003-of-00004.bin",
                           "/step-000000000002-e000001/shard-00000-of-00004.bin"}) {
    std::string content = ReadAll(folder.Path("ckpt") + path);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    OverwriteFile(folder.Path("ckpt") + path, content);
  }
  ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const LoadOutcome outcome,
                           LoadNewest(comm, folder.Path("ckpt"), AcceptAll));
    EXPECT_TRUE(outcome.state && run.Matches(*outcome.state));
    EXPECT_EQ(outcome.state->generation.step, 1);
    EXPECT_EQ(outcome.refused.size(), 2u);
    EXPECT_THAT(outcome.refused[0], ::testing::HasSubstr("rank 2 on node0"));
    EXPECT_THAT(outcome.refused[1], ::testing::HasSubstr("rank 0 on node0"));
    return Status::Ok();
  }));
}

}  // namespace
}  // namespace gaccd
