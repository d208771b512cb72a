#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/crc32c.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// The check value of the CRC catalogues, and the vectors of RFC 3720, B.4.
TEST(Crc32cTest, KnownValues) {
  for (const auto crc : {&Crc32c, &Crc32cByTable}) {
    EXPECT_EQ(crc(AsBytes("123456789"), 0), 0xe3069283u);
    EXPECT_EQ(crc(Bytes(32), 0), 0x8a9136aau);
    EXPECT_EQ(crc(Bytes(32, std::byte{0xff}), 0), 0x62a8ab43u);
    EXPECT_EQ(crc({}, 0), 0u);
  }
}

TEST(Crc32cTest, InstructionTableAndPartsAgree) {
  const Bytes content = Content(1000, 1, 1);
  for (std::size_t size = 0; size < 100; ++size) {
    const auto all = std::span(content).subspan(size % 7, size);
    EXPECT_EQ(Crc32c(all), Crc32cByTable(all));
    EXPECT_EQ(Crc32c(all.subspan(size / 3), Crc32c(all.first(size / 3))), Crc32c(all));
  }
}

// FIPS 180-4, "abc".
TEST(Sha256Test, KnownValue) {
  Sha256 sha;
  sha.Update(AsBytes("a"));
  sha.Update(AsBytes("bc"));
  EXPECT_EQ(Hex(sha.Finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(PartsTest, CoverBufferAlmostEqually) {
  for (const std::uint64_t bytes : {0u, 4u, 63u, 64u, 65u, 4000u, 100'000u}) {
    for (const std::int64_t world : {1, 2, 3, 7, 240}) {
      const BufferSpec buffer{"b", bytes};
      std::uint64_t end = 0;
      std::uint64_t least = bytes;
      std::uint64_t most = 0;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const ByteRange part = PartRange(buffer, rank, world);
        EXPECT_EQ(part.offset, end);
        end += part.bytes;
        least = std::min(least, part.bytes);
        most = std::max(most, part.bytes);
      }
      EXPECT_EQ(end, bytes);
      EXPECT_LE(most - least, 128u) << bytes << " on " << world;
    }
  }
  // No product of sizes and ranks may overflow.
  const BufferSpec huge{"b", kMaxBufferBytes};
  const ByteRange last = PartRange(huge, kMaxWorld - 1, kMaxWorld);
  EXPECT_EQ(last.offset + last.bytes, kMaxBufferBytes);
}

Manifest SmallManifest() {
  Manifest manifest{.cursor = SmallRun().CursorAt(3),
                    .writer_epoch = 2,
                    .created_s = 1,
                    .program = "p",
                    .job_text = "j",
                    .plan = MakeSmallPlan(2),
                    .hosts = "1xn1,1xn2",
                    .block_bytes = 256,
                    .parameters = {{"w", {2, 3}, 0}},
                    .buffers = {{"parameters", 100}, {"accumulators", 24, true}}};
  manifest.shards.resize(2);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    auto& shard = manifest.shards[static_cast<std::size_t>(rank)];
    shard.bytes = ShardBytes(MakeShardIdentity(manifest, rank));
    shard.sha256.fill(std::byte{9});
    shard.partial = {rank, 0.25};
    manifest.cursor.micro_step = 1;
  }
  manifest.cursor.best = {.evaluated = 3, .step = 2, .value = 0.5, .reference = 0.75, .waited = 1};
  manifest.cursor.content = {.train = 7, .eval = UINT64_MAX};
  manifest.cursor.loss_scale = {.scale = 1024, .growth_tracker = 2};
  return manifest;
}

TEST(ManifestTest, RoundTrips) {
  const Manifest manifest = SmallManifest();
  const auto again = ValueOrThrow(DecodeManifest("m", EncodeManifest(manifest)));
  EXPECT_EQ(again.cursor, manifest.cursor);
  EXPECT_EQ(again.writer_epoch, 2);
  EXPECT_EQ(again.program, "p");
  EXPECT_EQ(again.job_text, "j");
  EXPECT_EQ(again.plan->effective_batch(), 64);
  EXPECT_EQ(again.hosts, manifest.hosts);
  EXPECT_EQ(again.parameters, manifest.parameters);
  EXPECT_EQ(again.buffers, manifest.buffers);
  EXPECT_EQ(again.shards, manifest.shards);
  EXPECT_EQ(EncodeManifest(again), EncodeManifest(manifest));
}

TEST(ManifestTest, NewerVersionNamesItsProgram) {
  std::string file = EncodeManifest(SmallManifest());
  ASSERT_EQ(file.substr(12, 2), "\x08\x01") << "the version is the first field";
  const auto with_version = [&](char version) {
    file[13] = version;
    const std::size_t end = file.size() - 4;
    const std::uint32_t crc = Crc32c(std::as_bytes(std::span(file).first(end)));
    std::memcpy(file.data() + end, &crc, sizeof crc);
    return DecodeManifest("m", file).status();
  };
  EXPECT_THAT(with_version(2), IsError(ErrorKind::kConfig, "m: the checkpoint was written by p, "));
  EXPECT_THAT(with_version(2), IsError(ErrorKind::kConfig, "expected version 1, found 2"));
  EXPECT_THAT(with_version(0), IsError(ErrorKind::kData, "expected version 1, found 0"));
}

// A manifest of a run without groups has the bytes it had before there were any.
TEST(ManifestTest, GroupsRoundTripAndAreOmittedIfEmpty) {
  Manifest manifest = SmallManifest();
  const std::size_t plain = EncodeManifest(manifest).size();
  ParameterRecord& parameter = manifest.parameters[0];
  parameter.group = {.weight_decay = 0.0};
  EXPECT_EQ(EncodeManifest(manifest).size(), plain + 9);
  parameter.group = {.weight_decay = 0.25, .lr_factor = 0.5};
  parameter.frozen = true;
  const auto again = ValueOrThrow(DecodeManifest("m", EncodeManifest(manifest)));
  EXPECT_EQ(again.parameters, manifest.parameters);
}

TEST(ManifestTest, RefusesInvalidValues) {
  const auto error = [](const std::function<void(Manifest&)>& change) {
    Manifest manifest = SmallManifest();
    change(manifest);
    const auto decoded = DecodeManifest("m", EncodeManifest(manifest));
    EXPECT_FALSE(decoded.ok());
    return decoded.ok() ? "" : decoded.status().message();
  };
  EXPECT_THAT(error([](Manifest& m) { m.cursor.step = -1; }), HasSubstr("counts >= 0"));
  EXPECT_THAT(error([](Manifest& m) { m.writer_epoch = 0; }), HasSubstr("writer epoch >= 1"));
  EXPECT_THAT(error([](Manifest& m) { m.buffers[1].name = "parameters"; }), HasSubstr("twice"));
  EXPECT_THAT(error([](Manifest& m) { m.buffers[0].name = "../x"; }), HasSubstr("a name of"));
  EXPECT_THAT(error([](Manifest& m) { m.buffers[0].bytes = ~0ull; }),
              HasSubstr("buffer parameters: expected at most"));
  EXPECT_THAT(error([](Manifest& m) { m.block_bytes = 0; }), HasSubstr("blocks of"));
  EXPECT_THAT(error([](Manifest& m) { m.block_bytes = 1ull << 40; }), HasSubstr("blocks of"));
  EXPECT_THAT(error([](Manifest& m) {
                m.parameters[0].shape = {1 << 30, 1 << 30};
              }),
              HasSubstr("parameter w"));
  EXPECT_THAT(error([](Manifest& m) { m.parameters[0].offset = 20; }), HasSubstr("parameter w"));
  EXPECT_THAT(error([](Manifest& m) { m.parameters.push_back(m.parameters[0]); }),
              HasSubstr("parameter w"));
  EXPECT_THAT(error([](Manifest& m) {
                m.parameters.push_back({"w", {2}, 6});
              }),
              HasSubstr("parameter w is given twice"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.optimizer_updates = 4; }),
              HasSubstr("at most 3 optimiser updates"));
  EXPECT_THAT(
      error([](Manifest& m) { m.cursor.best.evaluated = 4; }),
      HasSubstr("which is up to update 3, found 0.5 after update 2, the last after update 4"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.best.evaluated = 1; }),
              HasSubstr("best evaluation"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.best.step = -1; }), HasSubstr("best evaluation"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.best.waited = 4; }), HasSubstr("best evaluation"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.best.reference = INFINITY; }),
              HasSubstr("best evaluation"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.best.value = NAN; }), HasSubstr("best evaluation"));
  for (const double scale : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    EXPECT_THAT(error([&](Manifest& m) { m.cursor.loss_scale->scale = scale; }),
                HasSubstr("expected a loss scale above 0"));
  }
  EXPECT_THAT(error([](Manifest& m) { m.cursor.loss_scale->growth_tracker = -1; }),
              HasSubstr("loss scale"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.loss_scale->growth_tracker = 4; }),
              HasSubstr("at most 3 updates old"));
  EXPECT_THAT(error([](Manifest& m) { m.shards[1].partial.samples = -1; }),
              HasSubstr("partial update of rank 1"));
  EXPECT_THAT(error([](Manifest& m) { m.shards[0].partial.divisor = -0.5; }),
              HasSubstr("partial update of rank 0"));
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error([&](Manifest& m) { m.shards[0].partial.loss_sum = loss; }),
                HasSubstr("partial update of rank 0"));
  }
  EXPECT_THAT(error([](Manifest& m) { m.cursor.micro_step = 0; }), HasSubstr("0 after none"));
  EXPECT_THAT(error([](Manifest& m) { m.shards.pop_back(); }), HasSubstr("expected 2 shards"));
  EXPECT_THAT(error([](Manifest& m) { m.plan.reset(); }), HasSubstr("plan"));
  EXPECT_THAT(error([](Manifest& m) { m.buffers.clear(); }), HasSubstr("buffers"));
  EXPECT_THAT(error([](Manifest& m) { m.buffers[0].per_rank = true; }), HasSubstr("each rank"));
  EXPECT_THAT(error([](Manifest& m) { m.shards.resize(kMaxWorld + 1); }), HasSubstr("shards"));
}

TEST(ManifestTest, CountersFollowFromJob) {
  const auto error = [](const std::function<void(Manifest&)>& change) {
    Manifest manifest = SmallManifest();
    manifest.job_text = SmallRun::kJob;
    for (ShardRecord& shard : manifest.shards) shard.partial.samples = 4;  // 32 in 8 micro-steps
    change(manifest);
    EXPECT_TRUE(DecodeManifest("m", EncodeManifest(manifest)).ok());
    const Status status = CheckedJob(manifest).status();
    EXPECT_TRUE(status.ok() || status.kind() == ErrorKind::kData);
    return status.ok() ? "" : status.message();
  };
  EXPECT_EQ(error([](Manifest&) {}), "");
  EXPECT_EQ(error([](Manifest& m) { m.cursor.samples = 3; }), "") << "micro-batches left out";
  EXPECT_THAT(error([](Manifest& m) { m.cursor.dataset_samples = 63; }), HasSubstr("found 63"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.step = 1'000'000; }),
              HasSubstr("expected at most update 999999, found 1000000"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.step = std::int64_t{1} << 60; }),
              HasSubstr("expected at most update 999999"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.samples = 2; }), HasSubstr("3 to 192 samples"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.samples = 193; }), HasSubstr("3 to 192 samples"));
  EXPECT_THAT(error([](Manifest& m) { m.cursor.micro_step = 8; }), HasSubstr("less than 8"));
  EXPECT_THAT(
      error([](Manifest& m) { m.shards[1].partial.samples = 5; }),
      HasSubstr("partial update of rank 1: expected 4 samples after 1 micro-steps, found 5"));
  // The last update of an epoch takes what is left: 999 - 15 * 64 = 39, or 20 and 19 a rank.
  const auto in_epochs = [](Manifest& m, std::int64_t step, std::int64_t samples) {
    m.job_text += " epochs: 3";
    m.job_text.replace(m.job_text.find("CARRY"), 5, "UPDATE");
    m.job_text.erase(m.job_text.find("epochs: 0"), 9);
    m.cursor.step = m.cursor.optimizer_updates = step;
    m.cursor.samples = samples;
  };
  EXPECT_EQ(error([&](Manifest& m) { in_epochs(m, 16, 999); }), "");
  EXPECT_THAT(error([&](Manifest& m) { in_epochs(m, 16, 1000); }), HasSubstr("16 to 999 samples"));
  EXPECT_THAT(error([&](Manifest& m) {
                in_epochs(m, 47, 2900);
                m.cursor.micro_step = 5;
              }),
              HasSubstr("less than 5"));
}

// Its bytes are those that were written, so it is not damaged.
TEST(ManifestTest, JobOfAnotherVersionNamesItsProgram) {
  Manifest manifest = SmallManifest();
  manifest.job_text = StrCat(SmallRun::kJob, " field_of_the_future: 1");
  for (const Status& status : {SavedJob(manifest).status(), CheckedJob(manifest).status()}) {
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "written by p, and gaccd "));
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "unknown field 'field_of_the_future'"));
  }
}

// The parameters lie inside the first buffer, and the one they would be read from has no bytes.
TEST(ManifestTest, ParametersAreInsideTheirBuffer) {
  Manifest manifest = SmallManifest();
  manifest.buffers = {{"decoy", 100}, {"parameters", 0}};
  EXPECT_THAT(DecodeManifest("m", EncodeManifest(manifest)),
              IsError(ErrorKind::kData, "found decoy"));
}

TEST(ManifestTest, RefusesMillionEmptyEntriesUnread) {
  Manifest manifest = SmallManifest();
  manifest.buffers.resize(1'000'000);
  EXPECT_THAT(DecodeManifest("m", EncodeManifest(manifest)), IsError(ErrorKind::kData, "fields"));
}

TEST(ManifestTest, DetectsAnyChangedOrMissingByte) {
  const std::string good = EncodeManifest(SmallManifest());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(DecodeManifest("m", bad).ok()) << "bit " << bit << " of byte " << i;
    }
    EXPECT_FALSE(DecodeManifest("m", good.substr(0, i)).ok());
  }
  EXPECT_FALSE(DecodeManifest("m", good + "x").ok());
}

class ShardTest : public ::testing::Test {
 protected:
  ShardIdentity identity_{.rank = 1,
                          .world = 3,
                          .step = 5,
                          .writer_epoch = 2,
                          .block_bytes = 256,
                          .buffers = {{"parameters", 4000}, {"optimizer", 8000}}};
  Bytes one_ = Content(PartRange(identity_.buffers[0], 1, 3).bytes, 5, 1);
  Bytes two_ = Content(PartRange(identity_.buffers[1], 1, 3).bytes, 5, 2);
  std::vector<std::span<const std::byte>> parts_{one_, two_};
  TempFolder folder_;
  std::string path_ = folder_.path() + "/s";
};

TEST_F(ShardTest, RoundTripsAndSha256sumAgrees) {
  const auto record = ValueOrThrow(WriteShard(path_, identity_, parts_, 0600));
  EXPECT_EQ(record.bytes, std::filesystem::file_size(path_));
  Bytes one(one_.size());
  Bytes two(two_.size());
  const std::vector<std::span<std::byte>> out{one, two};
  EXPECT_OK(ReadShardFile(path_, identity_, &record, out));
  EXPECT_EQ(one, one_);
  EXPECT_EQ(two, two_);
  const std::string command =
      StrCat("echo '", Hex(record.sha256), "  ", path_, "' | sha256sum --check --quiet");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(ShardTest, ReadsPartByItsBlocksOnly) {
  ASSERT_TRUE(WriteShard(path_, identity_, parts_, 0600).ok());
  Bytes all = one_;
  all.insert(all.end(), two_.begin(), two_.end());
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{255}, one_.size()}) {
    for (const std::uint64_t bytes : {0, 1, 256, 257, 1000}) {
      Bytes out(bytes);
      ASSERT_OK(ReadShardPart(path_, identity_, first, out));
      EXPECT_TRUE(std::ranges::equal(out, std::span(all).subspan(first, bytes)))
          << first << " " << bytes;
    }
  }
  Bytes whole(all.size());
  ASSERT_OK(ReadShardPart(path_, identity_, 0, whole));
  EXPECT_EQ(whole, all);
  // In the fourth block: it counts where it is read.
  std::fstream(path_, std::ios::in | std::ios::out).seekp(88 + 3 * 260 + 7).put('x');
  Bytes part(768);
  EXPECT_OK(ReadShardPart(path_, identity_, 0, part));
  EXPECT_THAT(ReadShardPart(path_, identity_, 1, part), IsError(ErrorKind::kData, path_, "CRC32C"));
  EXPECT_OK(ReadShardPart(path_, identity_, 1024, part));
  ShardIdentity other = identity_;
  other.step = 6;
  EXPECT_THAT(ReadShardPart(path_, other, 0, part), IsError(ErrorKind::kData, "expected step 6"));
  std::filesystem::resize_file(path_, 4000);
  EXPECT_THAT(ReadShardPart(path_, identity_, 0, part), IsError(ErrorKind::kData, "found 4000"));
}

TEST_F(ShardTest, IsNeverOverwritten) {
  ASSERT_TRUE(WriteShard(path_, identity_, parts_, 0600).ok());
  EXPECT_THAT(WriteShard(path_, identity_, parts_, 0600),
              IsError(ErrorKind::kIo, "never overwritten"));
  EXPECT_TRUE(ReadShardFile(path_, identity_, nullptr, {}).ok());
}

TEST_F(ShardTest, RefusesAnotherGenerationByName) {
  const auto record = WriteShard(path_, identity_, parts_, 0600);
  const auto error = [&](const std::function<void(ShardIdentity&)>& change) {
    ShardIdentity other = identity_;
    change(other);
    const Status status = ReadShardFile(path_, other, &*record, {});
    return status.ok() ? "" : status.message();
  };
  EXPECT_THAT(error([](auto& i) { i.step = 6; }), HasSubstr("expected step 6, found 5"));
  EXPECT_THAT(error([](auto& i) { i.writer_epoch = 3; }), HasSubstr("expected epoch 3, found 2"));
  EXPECT_THAT(error([](auto& i) { i.micro_step = 1; }), HasSubstr("expected micro-step 1"));
  EXPECT_THAT(error([](auto& i) { i.buffers[0].name = "p"; }), HasSubstr("buffers' digest"));
  ShardRecord wrong = *record;
  wrong.sha256[0] ^= std::byte{1};
  EXPECT_THAT(ReadShardFile(path_, identity_, &wrong, {}), IsError(ErrorKind::kData, "SHA-256"));
}

TEST_F(ShardTest, DetectsAnyChangedOrMissingByte) {
  ASSERT_TRUE(WriteShard(path_, identity_, parts_, 0600).ok());
  std::ifstream in(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::string bad = good;
  const auto verdict = [&](std::uint64_t size) {
    const ReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) {
      std::memcpy(out.data(), bad.data() + offset, out.size());
      return Status::Ok();
    };
    return ReadShard(read, size, identity_, nullptr, {}).ok();
  };
  EXPECT_TRUE(verdict(bad.size()));
  for (std::size_t i = 0; i < good.size(); ++i) {
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    EXPECT_FALSE(verdict(bad.size())) << "byte " << i << ", by CRC alone";
    bad[i] = good[i];
    EXPECT_FALSE(verdict(i));
  }
}

TEST_F(ShardTest, RefusesLinksAndWrongParts) {
  const auto record = WriteShard(path_, identity_, parts_, 0600);
  ASSERT_EQ(::symlink(path_.c_str(), (path_ + "l").c_str()), 0);
  EXPECT_THAT(ReadShardFile(path_ + "l", identity_, &*record, {}), IsError(ErrorKind::kIo, "sl'"));
  parts_[0] = parts_[0].subspan(1);
  EXPECT_THAT(WriteShard(path_ + "2", identity_, parts_, 0600),
              IsError(ErrorKind::kInternal, "parts"));
}

}  // namespace
}  // namespace gaccd
