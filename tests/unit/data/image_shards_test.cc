// Images in tar files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "collectives/base/strings.h"
#include "daemon/data/class_names.h"
#include "daemon/data/images/image_files.h"
#include "daemon/data/node_share.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tar_util.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::TarEnd;
using tests::TarMember;

std::string ContentOfPicture(const std::string& name) {
  return ContentOfFile(GACCD_PICTURES "/" + name);
}

// cat.1: class 0; dog/2: class 1, between members that are none of ours; dog/3.
std::string SmallTar() {
  return TarMember("cat.jpg", ContentOfPicture("420.jpg")) + TarMember("cat.cls", "0") +
         TarMember("dog/", "", '5') + TarMember("dog/2.json", "{}") +
         TarMember("dog/2.cls", " 1\n") + TarMember("dog/2.mask.png", "a mask") +
         TarMember("dog/2.PNG", ContentOfPicture("base.png")) + TarMember("dog/.hidden.jpg", "x") +
         TarMember("README", "x") + TarMember("dog/3.webp", ContentOfPicture("lossy.webp")) +
         TarMember("dog/3.cls", "1") + TarEnd();
}

Result<std::vector<ImageFile>> Index(const std::string& tar, std::int64_t classes = 2,
                                     std::vector<DamagedLabel>* damaged = nullptr) {
  std::vector<DamagedLabel> own;
  return IndexShard("s.tar", AsBytes(tar), classes, damaged == nullptr ? own : *damaged,
                    [] { return Status::Ok(); });
}

TEST(ImageShardsTest, MembersOfOneKeyFormASample) {
  const std::string tar = SmallTar();
  const auto images = ValueOrThrow(Index(tar));
  ASSERT_EQ(images.size(), 3U);
  EXPECT_THAT((std::vector{images[0].label, images[1].label, images[2].label}),
              ElementsAre(0, 1, 1));
  EXPECT_EQ(images[1].path, "dog/2.PNG");
  for (std::size_t i = 0; i < 3; ++i) {
    const char* name = i == 0 ? "420.jpg" : i == 1 ? "base.png" : "lossy.webp";
    EXPECT_EQ(tar.substr(static_cast<std::size_t>(images[i].offset),
                         static_cast<std::size_t>(images[i].bytes)),
              ContentOfPicture(name));
  }
}

// Long names, times with fractions: headers of their own before a member.
TEST(ImageShardsTest, TicksWithinOneTarFile) {
  const std::string large(Ticks::kBytes, 'x');
  const std::string tar = TarMember("note", large) + TarMember("data", large) + SmallTar();
  std::vector<DamagedLabel> damaged;
  int ticks = 0;
  const auto count = [&ticks] {
    ++ticks;
    return Status::Ok();
  };
  ASSERT_OK(IndexShard("s.tar", AsBytes(tar), 2, damaged, count).status());
  EXPECT_EQ(ticks, 2) << "after each large member";
  const Status stop(ErrorKind::kUnavailable, "stop");
  EXPECT_EQ(IndexShard("s.tar", AsBytes(tar), 2, damaged, [&] { return stop; }).status().kind(),
            stop.kind());
}

TEST(ImageShardsTest, ReadsTarFilesOfOtherWriters) {
  for (const char* name : {"pax.tar", "gnu.tar"}) {
    const std::string tar = ContentOfPicture(name);
    const auto images = ValueOrThrow(Index(tar, 10));
    ASSERT_EQ(images.size(), 3U) << name;
    EXPECT_GT(images[1].path.size(), 150U);
    EXPECT_THAT((std::vector{images[0].label, images[1].label, images[2].label}),
                ElementsAre(7, 3, 0));
    EXPECT_EQ(tar.substr(static_cast<std::size_t>(images[1].offset),
                         static_cast<std::size_t>(images[1].bytes)),
              ContentOfPicture("rgb.png"));
  }
}

TEST(ImageShardsTest, ReadsConcatenatedTarFiles) {
  EXPECT_EQ(ValueOrThrow(Index(TarMember("a.jpg", "1") + TarMember("a.cls", "0") + TarEnd() +
                               TarMember("b.jpg", "2") + TarMember("b.cls", "1") + TarEnd()))
                .size(),
            2U);
}

TEST(ImageShardsTest, NamesMistakes) {
  const auto refused = [](const std::string& tar) {
    const auto images = Index(tar);
    EXPECT_THAT(images, HasKind(ErrorKind::kData));
    return images.ok() ? "" : images.status().message();
  };
  const std::string one = TarMember("1.jpg", "x");
  const std::string label = TarMember("1.cls", "0");
  EXPECT_THAT(refused(one + TarMember("1.png", "y") + label + TarEnd()),
              HasSubstr("s.tar: expected one image with the key '1', found 1.jpg and 1.png"));
  EXPECT_THAT(refused(one + label + TarMember("1.cls", "1") + TarEnd()),
              HasSubstr("expected one .cls with the key '1', found 1.cls and 1.cls"));
  EXPECT_THAT(refused(one + label + TarMember("2.cls", "1") + TarEnd()),
              HasSubstr("expected an image with the key '2' (.jpg, .jpeg, .png or .webp), found "
                        "2.cls alone"));
  EXPECT_THAT(refused(one + TarMember("1.cls", "", '2') + TarEnd()),
              HasSubstr("1.cls: expected a plain file, found a link"));
  for (const char* dotted : {"b/2.left.jpg", "b/2.1.5.CLS"}) {
    EXPECT_THAT(
        refused(one + label + TarMember(dotted, "0") + TarEnd()),
        HasSubstr(StrCat("expected an image of the key 'b/2', as b/2.jpg, found ", dotted)));
    EXPECT_OK(Index(one + label + TarMember(dotted, "0") + TarMember("b/2.jpg", "x") +
                    TarMember("b/2.cls", "0") + TarEnd()));
  }
  EXPECT_OK(Index(one + label + TarMember("2.left.npy", "0") + TarEnd()));
  EXPECT_THAT(refused(TarMember("1.txt", "x") + TarEnd()),
              HasSubstr("expected images in it, found none"));
  EXPECT_THAT(refused(std::string("\x1f\x8b\x08\0", 4) + one),
              HasSubstr("expected a tar file that is not compressed, found gzip"));
  EXPECT_THAT(refused(std::string("\x28\xb5\x2f\xfd", 4) + one), HasSubstr("found zstd"));
  EXPECT_THAT(refused("no tar file at all"), HasSubstr("s.tar: damaged tar file: "));
  EXPECT_THAT(refused(""), HasSubstr("s.tar: "));
  std::string broken = one + label + TarEnd();
  broken[one.size() + 3] ^= 1;  // the checksum of a header
  EXPECT_THAT(refused(broken), HasSubstr("damaged tar file: "));
  EXPECT_THAT(refused(one + label), HasSubstr("truncated tar file: expected a block of zeros"));
}

TEST(ImageShardsTest, RefusesTruncatedFile) {
  const std::string tar = SmallTar();
  for (std::size_t bytes = 0; bytes + 1024 < tar.size(); bytes += bytes % 64 == 0 ? 1 : 21) {
    EXPECT_THAT(Index(tar.substr(0, bytes)), HasKind(ErrorKind::kData)) << bytes;
  }
}

TEST(ImageShardsTest, InvalidLabelsAreDamagedRecords) {
  std::string tar;
  for (const auto& [key, label] :
       {std::pair("a", "0"), {"b", "2"}, {"c", "-1"}, {"d", "1.5"}, {"e", ""}, {"f", "1"}}) {
    tar += TarMember(StrCat(key, ".jpg"), ContentOfPicture("420.jpg"));
    tar += TarMember(StrCat(key, ".cls"), label);
  }
  tar += TarMember("g.jpg", ContentOfPicture("420.jpg")) + TarEnd();
  std::vector<DamagedLabel> damaged;
  EXPECT_EQ(ValueOrThrow(Index(tar, 2, &damaged)).size(), 7U);
  ASSERT_EQ(damaged.size(), 5U);
  EXPECT_EQ(damaged[0].sample, 1);
  EXPECT_THAT(damaged[0].why,
              HasMessage(HasSubstr("b.cls: expected a class in [0, 2), found '2'")));
  EXPECT_EQ(damaged[4].sample, 6);
  EXPECT_THAT(
      damaged[4].why,
      HasMessage(HasSubstr("g.jpg: expected a label, a .cls with the same key, found none")));
}

class ShardedImagesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_.Path(name), std::ios::binary) << content;
  }
  [[nodiscard]] ImagesSpec Source(const std::string& path) const {
    return {.path = folder_.Path(path), .classes = 2, .size = {6, 5}};
  }
  TempFolder folder_;
};

TEST_F(ShardedImagesTest, EqualSamplesOfTheirFiles) {
  Write("s-01.tar", SmallTar());
  Write("s-00.tar",
        TarMember("x.png", ContentOfPicture("rgb.png")) + TarMember("x.cls", "1") + TarEnd());
  const auto dataset = Opened(Source("s-*.tar"));
  EXPECT_EQ(dataset->size(), 4);
  const Batch all = Gather(*dataset, {0, 1, 2, 3});
  EXPECT_THAT(all.labels, ElementsAre(1, 0, 1, 1));
  // The same files in folders.
  std::size_t row = 0;
  for (const char* name : {"rgb.png", "420.jpg", "base.png", "lossy.webp"}) {
    const std::string folder = StrCat("f", row);
    for (const char* of_class : {"/0", "/1"}) {
      std::filesystem::create_directories(folder_.Path(folder + of_class));
      std::filesystem::copy_file(StrCat(GACCD_PICTURES "/", name),
                                 folder_.Path(folder + of_class + "/" + name));
    }
    const Batch alone = Gather(*Opened(Source(folder)), {0});
    EXPECT_TRUE(std::equal(alone.features.begin(), alone.features.end(),
                           all.features.begin() + static_cast<std::ptrdiff_t>(row) * 90));
    ++row;
  }
  EXPECT_EQ(Gather(*Opened(Source("s-00.tar")), {0}).labels[0], 1);
  Job job;
  job.data.train = Source("s-*.tar");
  EXPECT_TRUE(ValueOrThrow(ReadClassNames(job)).names.empty());
}

TEST_F(ShardedImagesTest, DamagedImagesFollowRules) {
  std::string image = ContentOfPicture("420.jpg");
  image.resize(image.size() - 20);
  Write("s-0.tar", SmallTar());
  Write("s-1.tar", TarMember("bad.jpg", image) + TarMember("bad.cls", "0") +
                       TarMember("none.png", ContentOfPicture("rgb.png")) + TarEnd());
  EXPECT_THAT(Refused(ErrorKind::kData, Source("s-*.tar")),
              HasSubstr("s-1.tar: none.png: expected a label"));
  const BadRecordRules one{.policy = OnBadRecord::kSkip, .quota = 1, .seed = 7};
  EXPECT_THAT(OpenDataset(Source("s-*.tar"), {}, one),
              HasMessage(AllOf(HasSubstr("at most 1 may be skipped"),
                               HasSubstr("s-1.tar: bad.jpg: damaged JPEG image"))));
  const BadRecordRules two{.policy = OnBadRecord::kSkip, .quota = 2, .seed = 7};
  const auto dataset = ValueOrThrow(OpenDataset(Source("s-*.tar"), {}, two));
  ASSERT_EQ(dataset->bad_records().size(), 2U);
  EXPECT_EQ(dataset->bad_records()[0].sample, 3);
  EXPECT_EQ(dataset->bad_records()[1].sample, 4);
  EXPECT_EQ(Gather(*dataset, {3}).features,
            Gather(*dataset, {dataset->bad_records()[0].replacement}).features);
}

// The sets of training and evaluation may begin with the same image.
TEST_F(ShardedImagesTest, ChecksEverySetOfTheNode) {
  std::string image = ContentOfPicture("420.jpg");
  image.resize(image.size() - 20);
  Write("s-0.tar", SmallTar());
  Write("s-1.tar", TarMember("bad.jpg", image) + TarMember("bad.cls", "0") + TarEnd());
  NodeShare leader = NodeShare::Leader([] { return Status::Ok(); });
  EXPECT_OK(OpenDataset(Source("s-0.tar"), {}, {}, &leader).status());
  EXPECT_THAT(OpenDataset(Source("s-*.tar"), {}, {}, &leader),
              HasMessage(HasSubstr("s-1.tar: bad.jpg: damaged JPEG image")));
}

TEST_F(ShardedImagesTest, DetectsChangedOrMissingFiles) {
  EXPECT_THAT(Refused(ErrorKind::kIo, Source("s-*.tar")), HasSubstr("no file is called '"));
  EXPECT_THAT(Refused(ErrorKind::kIo, Source("s.tar")), HasSubstr("s.tar"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source("*/s-*.tar")), HasSubstr("expected one '*'"));
  Write("s.tar", SmallTar());
  const auto dataset = Opened(Source("s.tar"));
  EXPECT_OK(dataset->CheckUnchanged());
  std::filesystem::rename(folder_.Path("s.tar"), folder_.Path("t.tar"));
  Write("s.tar", SmallTar());
  EXPECT_THAT(dataset->CheckUnchanged(), HasKind(ErrorKind::kData));
}

}  // namespace
}  // namespace gaccd
