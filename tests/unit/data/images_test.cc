// Image files as a data set.
#include "daemon/data/images/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/data/class_names.h"
#include "daemon/data/node_share.h"
#include "daemon/data/prefetcher.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// cat: 3 images, dog: 4. They have different sizes and formats; the last has one pixel.
class ImagesTest : public ::testing::Test {
 protected:
  ImagesTest() {
    Copy("420.jpg", "train/cat/a.jpg");
    Copy("rgb.png", "train/cat/b.png");
    Copy("base.png", "train/cat/more/c");
    Copy("lossy.webp", "train/dog/1.webp");
    Copy("palette.png", "train/dog/2.jpg");  // whatever its name says
    Copy("cmyk.jpg", "train/dog/3.jpg");
    Copy("one.jpg", "train/dog/one.jpg");
  }

  void Copy(const std::string& picture, const std::string& to) const {
    const fs::path path = folder_.Path(to);
    fs::create_directories(path.parent_path());
    fs::copy_file(GACCD_PICTURES "/" + picture, path);
  }
  // A file that ends too early.
  void Damage(const std::string& name) const {
    fs::resize_file(folder_.Path(name), fs::file_size(folder_.Path(name)) - 20);
  }
  [[nodiscard]] ImagesSpec Source() const {
    return {.path = folder_.Path("train"), .classes = 2, .size = {6, 5}};
  }
  [[nodiscard]] ImagesSpec RandomSource() const {
    ImagesSpec source = Source();
    source.crop = RandomResizedCropSpec{};
    source.horizontal_flip = 0.5;
    source.augmentation = RandAugmentSpec{};
    source.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    source.random_erasing = RandomErasingSpec{.p = 0.5};
    return source;
  }
  TempFolder folder_;
};

TEST_F(ImagesTest, SamplesAreFilesByClass) {
  const auto dataset = Opened(Source(), {.scale = 1.0 / 255});
  EXPECT_EQ(dataset->size(), 7);
  EXPECT_EQ(Describe(dataset->spec()), "features f32 [3, 6, 5], labels i32 [], 2 classes");
  const Batch all = Gather(*dataset, {0, 1, 2, 3, 4, 5, 6});
  EXPECT_THAT(all.labels, ElementsAre(0, 0, 0, 1, 1, 1, 1));
  for (const float feature : all.features) EXPECT_TRUE(feature >= 0 && feature <= 1) << feature;
  const auto row = [&](std::size_t i) {
    return std::vector(all.features.begin() + i * 90, all.features.begin() + (i + 1) * 90);
  };
  EXPECT_EQ(Gather(*dataset, {5}).features, row(5));
  EXPECT_NE(row(0), row(1));
  // One pixel: the same colour everywhere.
  const Batch one = Gather(*dataset, {6});
  for (std::size_t i = 0; i < 90; ++i) EXPECT_EQ(one.features[i], one.features[i / 30 * 30]);
  EXPECT_TRUE(dataset->ReadError().ok());
}

TEST_F(ImagesTest, NormalisesByChannel) {
  const Batch plain = Gather(*Opened(Source()), {2});
  const Batch scaled = Gather(
      *Opened(Source(), {.scale = 0.5, .channel_mean = {1, 2, 3}, .channel_std = {1, 4, 2}}), {2});
  for (std::size_t i = 0; i < 90; ++i) {
    const std::size_t c = i / 30;
    const float std = std::array<float, 3>{1, 4, 2}[c];
    EXPECT_FLOAT_EQ(scaled.features[i], (plain.features[i] / 2 - static_cast<float>(c + 1)) / std);
  }
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source(), {.channel_std = {1, 2}}),
              HasSubstr("data.normalize.channel_std: expected 3 values, one for each channel, "
                        "found 2"));
  ImagesSpec grey = Source();
  grey.channels = 1;
  EXPECT_EQ(Gather(*Opened(grey), {2}).features.size(), 30U);
}

TEST_F(ImagesTest, ClassesAreFoldersInByteOrder) {
  Copy("rgb.png", "train/Zebra/z.png");
  Copy("rgb.png", "train/.cache/x.png");  // hidden
  Copy("rgb.png", "train/note.png");      // in no class
  Job job;
  ImagesSpec source = Source();
  source.classes = 3;
  job.data.train = source;
  EXPECT_THAT(ValueOrThrow(ReadClassNames(job)).names, ElementsAre("Zebra", "cat", "dog"));
  job.data.class_name = {"Zebra", "cat", "dog"};  // as a training sets it
  const ClassNames named = ValueOrThrow(ReadClassNames(job));
  EXPECT_EQ(named.from, source.path);
  const Status moved = CheckSameClasses(JobClassNames(job.data, "the checkpoint"),
                                        {{"Zebra", "cow"}, "the data of this job"});
  EXPECT_THAT(moved, HasMessage(AllOf(HasSubstr("class 1 is 'cat' in the checkpoint"),
                                      HasSubstr("the folders of images must have"))));
  EXPECT_THAT(Gather(*Opened(source), {0, 1, 7}).labels, ElementsAre(0, 1, 2));
  Copy("rgb.png", "eval/Zebra/z.png");
  Copy("rgb.png", "eval/bird/b.png");
  source.path = folder_.Path("eval");
  job.data.eval = source;
  EXPECT_THAT(ReadClassNames(job), HasMessage(AllOf(HasSubstr("class 1 is 'cat' in"),
                                                    HasSubstr("the folders of images must have"),
                                                    Not(HasSubstr("tools/prepare")))));
}

TEST_F(ImagesTest, RefusesFoldersThatAreNoClasses) {
  ImagesSpec three = Source();
  three.classes = 3;
  EXPECT_THAT(Refused(ErrorKind::kData, three),
              HasSubstr("for each class, 3 (images.classes), found 2 folders: cat, dog; data"));
  fs::create_directories(folder_.Path("train/empty"));
  EXPECT_THAT(Refused(ErrorKind::kData, three),
              HasSubstr("train/empty: expected images of this class, found none"));
  fs::remove(folder_.Path("train/empty"));
  ImagesSpec empty = Source();
  empty.path = folder_.Path("train/dog");
  EXPECT_THAT(Refused(ErrorKind::kData, empty), HasSubstr("found 0 folders (tar files are given"));
  fs::create_symlink("nowhere.png", folder_.Path("train/cat/link.png"));
  EXPECT_THAT(Refused(ErrorKind::kIo, Source()),
              HasSubstr("train/cat/link.png': No such file or directory"));
  fs::remove(folder_.Path("train/cat/link.png"));
  Copy("420.jpg", "train/cat/b.jpg");
  EXPECT_THAT(Refused(ErrorKind::kData, Source()),
              AllOf(HasSubstr("expected one image of a name, found"), HasSubstr("cat/b.jpg' and"),
                    HasSubstr("cat/b.png'")));
  ImagesSpec nowhere = Source();
  nowhere.path = folder_.Path("none");
  EXPECT_THAT(Refused(ErrorKind::kIo, nowhere), HasSubstr("none"));
}

TEST_F(ImagesTest, DamagedImagesFollowRules) {
  Damage("train/cat/a.jpg");
  Damage("train/dog/2.jpg");
  EXPECT_THAT(Refused(ErrorKind::kData, Source()),
              HasSubstr("train/cat/a.jpg: damaged JPEG image: "));
  for (const std::int64_t threads : {1, 3}) {
    ImagesSpec source = Source();
    source.threads = threads;
    const BadRecordRules one{.policy = OnBadRecord::kSkip, .quota = 1, .seed = 7};
    EXPECT_THAT(OpenDataset(source, {}, one),
                HasMessage(AllOf(HasSubstr("at most 1 may be skipped"), HasSubstr("dog/2.jpg"))));
    const BadRecordRules two{.policy = OnBadRecord::kSkip, .quota = 2, .seed = 7};
    const auto dataset = ValueOrThrow(OpenDataset(source, {}, two));
    ASSERT_EQ(dataset->bad_records().size(), 2U);
    EXPECT_EQ(dataset->bad_records()[0].sample, 0);
    const std::int64_t other = dataset->bad_records()[1].replacement;
    EXPECT_EQ(Gather(*dataset, {4}).features, Gather(*dataset, {other}).features);
    EXPECT_TRUE(dataset->ReadError().ok());
  }
}

TEST_F(ImagesTest, ImageSmallerThanCropIsDamaged) {
  ImagesSpec source = Source();
  source.size = {8};
  source.crop = CenterCropSpec{};
  EXPECT_THAT(
      Refused(ErrorKind::kData, source),
      HasSubstr("one.jpg: expected an image of at least 8 x 8 pixels to cut out its centre, "
                "found 1 x 1"));
  source.crop = CenterCropSpec{.resize = 8};
  EXPECT_TRUE(Opened(source)->ReadError().ok());
}

TEST_F(ImagesTest, DetectsUncheckedDamageOnRead) {
  Damage("train/dog/3.jpg");
  ImagesSpec source = Source();
  source.decode_all = false;
  const auto dataset = Opened(source);
  (void)Gather(*dataset, {0, 1, 2, 3, 4});
  EXPECT_TRUE(dataset->ReadError().ok());
  const Batch read = Gather(*dataset, {5, 6});
  EXPECT_TRUE(std::isnan(read.features[0]));  // not to be trained on
  EXPECT_FALSE(std::isnan(read.features[90]));
  EXPECT_THAT(dataset->ReadError(), HasMessage(HasSubstr("dog/3.jpg: damaged JPEG image")));
  EXPECT_FALSE(dataset->CheckUnchanged().ok());
  fs::remove(folder_.Path("train/cat/a.jpg"));
  (void)Gather(*dataset, {0});
  EXPECT_THAT(dataset->ReadError(), HasMessage(HasSubstr("3.jpg")));  // the first one
}

TEST_F(ImagesTest, ReadsCheckedFilesAsFarAsNeeded) {
  Copy("part_420.jpg", "train/dog/4.jpg");
  ImagesSpec source = Source();
  source.crop = RandomResizedCropSpec{.scale = {0.05, 0.05}};
  const auto checked = Opened(source);
  source.decode_all = false;
  const auto unchecked = Opened(source);
  const auto read = [](const Dataset& data, std::uint64_t seed) {
    std::vector<float> features(90);
    const auto drawn = dynamic_cast<const ImageDataset&>(data).Read(6, seed, 0, features.data());
    return std::pair(drawn, features);
  };
  std::uint64_t seed = 0;  // of a part in the upper half
  while (true) {
    const Box from = ValueOrThrow(read(*checked, seed).first).from;
    if (from.top + from.height < 40) break;
    ++seed;
  }
  const std::vector<float> before = read(*checked, seed).second;
  EXPECT_EQ(read(*unchecked, seed).second, before);
  Damage("train/dog/4.jpg");
  EXPECT_OK(read(*checked, seed).first);
  EXPECT_EQ(read(*checked, seed).second, before);
  EXPECT_THAT(read(*unchecked, seed).first, HasMessage(HasSubstr("dog/4.jpg: damaged JPEG image")));
}

TEST_F(ImagesTest, OneRankPerNodeDecodes) {
  int ticks = 0;
  NodeShare leader = NodeShare::Leader([&] {
    ++ticks;
    return Status::Ok();
  });
  ASSERT_TRUE(OpenDataset(Source(), {}, {}, &leader).ok());
  EXPECT_EQ(ticks, 3) << "of two classes and one batch";
  Damage("train/cat/a.jpg");  // the others would see it
  NodeShare other = NodeShare::Follower(leader.Text(), [] { return Status::Ok(); });
  EXPECT_TRUE(OpenDataset(Source(), {}, {}, &other).ok());
  ImagesSpec larger = Source();
  larger.size = {7};
  EXPECT_FALSE(OpenDataset(larger, {}, {}, &other).ok());
}

TEST_F(ImagesTest, MemoryOfLargestImageIsKnown) {
  constexpr std::int64_t kLargest = std::int64_t{3} * 91 * 75;
  Copy("part_420.jpg", "train/dog/4.jpg");
  ImagesSpec source = Source();
  source.threads = 3;
  NodeShare leader = NodeShare::Leader([] { return Status::Ok(); });
  ASSERT_TRUE(OpenDataset(source, {}, {}, &leader).ok());
  fs::resize_file(folder_.Path("train/dog/4.jpg"), 1);  // the others read no image
  NodeShare other = NodeShare::Follower(leader.Text(), [] { return Status::Ok(); });
  EXPECT_EQ(ValueOrThrow(OpenDataset(source, {}, {}, &other))->gather_bytes(7), 3 * kLargest);
}

TEST_F(ImagesTest, AllRanksOfNodeFindDamagedImages) {
  Damage("train/cat/a.jpg");
  const BadRecordRules rules{.policy = OnBadRecord::kSkip, .quota = 2};
  NodeShare leader = NodeShare::Leader([] { return Status::Ok(); });
  EXPECT_EQ(ValueOrThrow(OpenDataset(Source(), {}, rules, &leader))->bad_records().size(), 1U);
  NodeShare other = NodeShare::Follower(leader.Text(), [] { return Status::Ok(); });
  EXPECT_EQ(ValueOrThrow(OpenDataset(Source(), {}, rules, &other))->bad_records().size(), 1U);
}

// All epochs of one rank, by (epoch, sample).
using Seen = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;

Seen Train(const Dataset& dataset, std::int64_t ranks, std::int64_t micro, std::int64_t batch,
           std::int64_t first_update = 0) {
  constexpr std::int64_t kEpochs = 4;
  Seen seen;
  const SampleOrder order(5, dataset.size(), /*shuffle=*/true);
  const auto schedule = ValueOrThrow(UpdateSchedule::Make({.dataset_size = dataset.size(),
                                                           .batch = batch,
                                                           .epochs = kEpochs,
                                                           .last_cycle = LastCycle::kCarry}));
  const Plan plan = ValueOrThrow(Plan::Make(
      {.nodes = 1, .gpus_per_node = ranks, .micro_batch = micro, .target_batch = batch}));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto indices = ValueOrThrow(TrainIndices::Make(order, schedule, plan, rank, first_update));
    const auto prefetcher = ValueOrThrow(
        Prefetcher::Start(dataset, std::make_unique<TrainIndices>(std::move(indices))));
    while (const BatchView* view = prefetcher->Next()) {
      EXPECT_TRUE(prefetcher->status().ok());
      const std::size_t row = 90;
      for (std::int64_t i = 0; i < view->samples; ++i) {
        const std::size_t at = static_cast<std::size_t>(i);
        const float* features = view->tensor<float>(0) + at * row;
        const bool is_new = seen.emplace(std::pair(view->run.RowEpoch(at), view->ids[i]),
                                         std::vector<float>(features, features + row))
                                .second;
        EXPECT_TRUE(is_new);
      }
    }
  }
  return seen;
}

TEST_F(ImagesTest, DrawsDependOnSampleAndEpochOnly) {
  ImagesSpec source = RandomSource();
  const Seen seen = Train(*Opened(source), 1, 1, 1);
  ASSERT_EQ(seen.size(), 28U);
  std::set<std::vector<float>> different;
  for (const auto& [place, features] : seen) different.insert(features);
  EXPECT_GT(different.size(), 26U);  // a crop of one pixel may look the same twice
  for (const std::int64_t threads : {1, 2, 4}) {
    source.threads = threads;
    const auto dataset = Opened(source);
    EXPECT_EQ(Train(*dataset, 1, 7, 7), seen);
    EXPECT_EQ(Train(*dataset, 2, 2, 5), seen);  // updates over the ends of epochs
    EXPECT_EQ(Train(*dataset, 5, 1, 6), seen);  // a rank takes more than the others
  }
  for (const auto& [place, features] : Train(*Opened(source), 3, 2, 4, /*first_update=*/3)) {
    EXPECT_EQ(seen.at(place), features);  // after a restart
  }
}

TEST_F(ImagesTest, OperationsDrawIndependentNumbers) {
  ImagesSpec source = RandomSource();
  const auto all = ValueOrThrow(ImageTransform::Make(source, {}));
  source.color_jitter = {};
  source.augmentation = {};
  source.horizontal_flip = 0;
  const auto fewer = ValueOrThrow(ImageTransform::Make(source, {}));
  int flipped = 0;
  int erased = 0;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    const ImageParameters one = ValueOrThrow(all.Draw(40, 50, key));
    const ImageParameters other = ValueOrThrow(fewer.Draw(40, 50, key));
    EXPECT_EQ(one.from, other.from);
    EXPECT_EQ(one.erased, other.erased);
    EXPECT_FALSE(other.flip);
    EXPECT_EQ(one.augmentations.size(), 2U);
    EXPECT_TRUE(other.augmentations.empty());
    EXPECT_EQ(std::set(one.order.begin(), one.order.end()).size(), 4U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(one.factor[i], 1, 0.4);
    EXPECT_NEAR(one.factor[3], 0, 0.1);
    flipped += one.flip ? 1 : 0;
    erased += one.erased ? 1 : 0;
  }
  EXPECT_NEAR(flipped, 500, 60);
  EXPECT_NEAR(erased, 500, 60);
}

TEST_F(ImagesTest, FlipsAndErases) {
  ImagesSpec source = Source();
  const Batch plain = Gather(*Opened(source), {2});
  source.horizontal_flip = 1;
  source.random_erasing = RandomErasingSpec{.p = 1};
  const Batch changed = Gather(*Opened(source), {2});
  int erased = 0;
  for (std::size_t i = 0; i < 90; ++i) {
    const float mirrored = plain.features[i / 5 * 5 + 4 - i % 5];
    erased += changed.features[i] == 0 ? 1 : 0;
    EXPECT_THAT(changed.features[i], testing::AnyOf(0.F, mirrored));
  }
  EXPECT_GT(erased, 0);
  EXPECT_LT(erased, 60);
}

// libjpeg wants memory for all of a progressive image at once. Without it the image is not a
// damaged record, which another would replace, and a decoding thread does not end the process.
TEST_F(ImagesTest, MissingMemoryIsNotDamage) {
  if (tests::kSanitized) return;  // sanitizers reserve address space
  std::stringstream content;
  content << std::ifstream(GACCD_PICTURES "/progressive.jpg", std::ios::binary).rdbuf();
  std::string large = content.str();
  const std::size_t frame = large.find("\xff\xc2");
  ASSERT_NE(frame, std::string::npos);
  large.replace(frame + 5, 4, "\x1f\x40\x1f\x40");  // 8000 x 8000
  (void)folder_.Write("train/cat/large.jpg", large);
  ImagesSpec source = Source();
  source.threads = 2;
  const auto open_in_little_memory = [&] {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (64U << 20U);
    const rlimit little{.rlim_cur = bytes, .rlim_max = bytes};
    ::setrlimit(RLIMIT_AS, &little);
    const auto opened = OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 9});
    std::_Exit(!opened.ok() && opened.status().kind() == ErrorKind::kConfig ? 0 : 1);
  };
  EXPECT_EXIT(open_in_little_memory(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gaccd
