// Images in arrays: the samples of the same images in files, with the same random operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "collectives/base/strings.h"
#include "daemon/data/class_names.h"
#include "daemon/data/images/image_files.h"
#include "daemon/data/images/images.h"
#include "daemon/data/sources.h"
#include "tests/support/file_util.h"
#include "tests/support/graph_cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/whole_image.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Image Picture(const std::string& name, std::int64_t channels) {
  const std::string file = ContentOfFile(StrCat(GACCD_PICTURES "/", name));
  return ValueOrThrow(DecodeImage(name, std::as_bytes(std::span(file)), channels));
}

std::string Pixels(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }

// NPY: the same image, so many times.
std::string Copies(const Image& image, std::int64_t count, bool with_channels = true) {
  const std::string channels = with_channels ? StrCat(", ", image.channels) : "";
  std::string text = NpyHeader(NpyDictionary(
      "|u1", StrCat("(", count, ", ", image.height, ", ", image.width, channels, ")")));
  for (std::int64_t i = 0; i < count; ++i) text += Pixels(image);
  return text;
}

std::string Labels(std::initializer_list<std::int64_t> labels) {
  return NpyHeader(NpyDictionary("<i8", StrCat("(", labels.size(), ",)"))) +
         Raw(std::span<const std::int64_t>(labels.begin(), labels.size()));
}

class ImageArraysTest : public ::testing::Test {
 protected:
  [[nodiscard]] ImagesSpec Source(const std::string& images, const std::string& labels) const {
    return {.path = folder_.Write("x.npy", images),
            .classes = 2,
            .size = {6, 5},
            .labels = folder_.Write("y.npy", labels)};
  }
  // A folder with as many copies of the picture.
  [[nodiscard]] ImagesSpec Files(const std::string& name, std::int64_t count) const {
    const std::filesystem::path folder = folder_.Path("train/cat");
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    for (std::int64_t i = 0; i < count; ++i) {
      std::filesystem::copy_file(StrCat(GACCD_PICTURES "/", name), folder / StrCat(i, ".x"));
    }
    return {.path = folder_.Path("train"), .classes = 1, .size = {6, 5}};
  }
  static void AddRandomOperations(ImagesSpec& source) {
    source.crop = RandomResizedCropSpec{};
    source.horizontal_flip = 0.5;
    source.augmentation = RandAugmentSpec{};
    source.color_jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
    source.random_erasing = RandomErasingSpec{.p = 0.5};
  }
  // All features of three samples in some epochs.
  static std::vector<float> Features(const ImagesSpec& source) {
    const NormalizeSpec normalize{.scale = 1.0 / 255};
    const BadRecordRules rules;
    const std::string folder;
    const auto images =
        ValueOrThrow(OpenImages(source, OpenContext{normalize, rules, nullptr, folder}));
    std::vector<float> all;
    std::vector<float> one(static_cast<std::size_t>(images->spec().tensors[0].elements()));
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      for (std::int64_t i = 0; i < images->size(); ++i) {
        EXPECT_OK(images->Read(i, 5, epoch, one.data()).status());
        all.insert(all.end(), one.begin(), one.end());
      }
    }
    return all;
  }
  TempFolder folder_;
};

TEST_F(ImageArraysTest, SamplesAreThoseOfTheSameFiles) {
  for (const char* name : {"rgb.png", "base.png"}) {
    for (const std::int64_t channels : {1, 3}) {
      for (const std::int64_t stored : {1, 3}) {
        for (const bool random : {false, true}) {
          if (stored == 1 && channels == 3) continue;  // colours are lost
          SCOPED_TRACE(StrCat(name, ", ", stored, " channels as ", channels, " random ", random));
          ImagesSpec files = Files(name, 3);
          ImagesSpec array =
              Source(Copies(Picture(name, stored), 3, stored == 3), Labels({0, 1, 0}));
          for (ImagesSpec* source : {&files, &array}) {
            source->channels = channels;
            if (random) AddRandomOperations(*source);
          }
          EXPECT_EQ(Features(array), Features(files));
        }
      }
    }
  }
}

TEST_F(ImageArraysTest, GreyBecomesThreeEqualChannels) {
  const ImagesSpec source = Source(Copies(Picture("rgb.png", 1), 2), Labels({1, 0}));
  const Batch all = Gather(*Opened(source), {0, 1});
  EXPECT_THAT(all.labels, ElementsAre(1, 0));
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(all.features[i], all.features[i + 30]);
    EXPECT_EQ(all.features[i], all.features[i + 60]);
  }
}

TEST_F(ImageArraysTest, FilesOfMnistAreJoined) {
  (void)folder_.Write("a-images", IdxHeader(8, {2, 2, 3}) + "ABCDEFGHIJKL");
  (void)folder_.Write("a-labels", IdxHeader(8, {2}) + std::string("\x01\x00", 2));
  (void)folder_.Write("b-images", IdxHeader(8, {1, 1, 2}) + "MN");
  (void)folder_.Write("b-labels", IdxHeader(8, {1}) + "\x01");
  ImagesSpec source{.path = folder_.Path("*-images"),
                    .classes = 2,
                    .size = {1, 2},
                    .channels = 1,
                    .labels = folder_.Path("*-labels")};
  const auto dataset = Opened(source);
  EXPECT_EQ(dataset->size(), 3);
  const Batch all = Gather(*dataset, {2, 0});
  EXPECT_THAT(all.labels, ElementsAre(1, 1));
  EXPECT_EQ(all.features[0], 'M');
  EXPECT_EQ(all.features[1], 'N');
  ImagesSpec first = source;
  first.path = folder_.Path("a-images");
  first.labels = folder_.Path("a-labels");
  first.size = {2, 3};
  EXPECT_THAT(Gather(*Opened(first), {1}).features, ElementsAre('G', 'H', 'I', 'J', 'K', 'L'));
  const auto images =
      ValueOrThrow(OpenImages(source, OpenContext{NormalizeSpec{}, {}, nullptr, ""}));
  EXPECT_EQ(images->ImageName(1), folder_.Path("a-images") + ": image 1");
  EXPECT_EQ(images->ImageName(2), folder_.Path("b-images") + ": image 0");
  Job job;
  job.data.train = source;
  EXPECT_TRUE(ValueOrThrow(ReadClassNames(job)).names.empty());
  std::filesystem::remove(folder_.Path("b-labels"));
  EXPECT_THAT(Refused(ErrorKind::kData, source), HasSubstr("expected a file for each of the 2 of"));
  (void)folder_.Write("c-labels", IdxHeader(8, {1}) + "\x01");
  EXPECT_THAT(Refused(ErrorKind::kData, source), HasSubstr("none for '"));
}

TEST_F(ImageArraysTest, RefusesOtherArrays) {
  const auto refused = [&](const std::string& images, const std::string& labels) {
    return Refused(ErrorKind::kData, Source(images, labels));
  };
  const std::string image = Copies(Picture("rgb.png", 3), 1);
  const std::string short_image = NpyHeader(NpyDictionary("<i2", "(1, 2, 2)")) + "abcdefgh";
  EXPECT_THAT(refused(short_image, Labels({0})), HasSubstr("expected images as bytes (u8), "));
  EXPECT_THAT(refused(short_image, Labels({0})), HasSubstr("found i16 of shape [1, 2, 2]"));
  EXPECT_THAT(refused(NpyHeader(NpyDictionary("|u1", "(1, 4)")) + "abcd", Labels({0})),
              HasSubstr("found u8 of shape [1, 4]"));
  EXPECT_THAT(refused(NpyHeader(NpyDictionary("|u1", "(1, 1, 2, 2)")) + "abcd", Labels({0})),
              HasSubstr("1 or 3 channels"));
  EXPECT_THAT(refused(NpyHeader(NpyDictionary("|u1", "(0, 2, 2)")), Labels({})),
              HasSubstr("found u8 of shape [0, 2, 2]"));
  EXPECT_THAT(refused(image, Labels({0, 1})),
              HasSubstr("expected 1 labels, integers, as many as images in"));
  EXPECT_THAT(refused(image, NpyHeader(NpyDictionary("<f4", "(1,)")) + std::string(4, '\0')),
              HasSubstr("found f32 of shape [1]"));
  EXPECT_THAT(refused(image, "no array"), HasSubstr("y.npy: not an IDX file"));
  ImagesSpec cut = Source(image, Labels({0}));
  cut.size = {4000, 4000};
  cut.crop = CenterCropSpec{};
  EXPECT_THAT(Refused(ErrorKind::kData, cut), HasSubstr("x.npy: image 0: "));
}

TEST_F(ImageArraysTest, LabelsOfNoClassFollowRules) {
  const ImagesSpec source = Source(Copies(Picture("rgb.png", 3), 3), Labels({1, 2, -1}));
  EXPECT_THAT(Refused(ErrorKind::kData, source),
              HasSubstr("y.npy: expected labels in [0, 2), found 2 (sample 1)"));
  const BadRecordRules two{.policy = OnBadRecord::kSkip, .quota = 2, .seed = 7};
  const auto dataset = ValueOrThrow(OpenDataset(source, {}, two));
  ASSERT_EQ(dataset->bad_records().size(), 2U);
  EXPECT_THAT(Gather(*dataset, {0, 1, 2}).labels, ElementsAre(1, 1, 1));
}

TEST_F(ImageArraysTest, DetectsChangedFiles) {
  const ImagesSpec source = Source(Copies(Picture("rgb.png", 3), 3), Labels({1, 0, 1}));
  const auto dataset = Opened(source);
  EXPECT_OK(dataset->CheckUnchanged());
  std::filesystem::resize_file(source.path, 100);
  EXPECT_THAT(dataset->CheckUnchanged(), HasKind(ErrorKind::kData));
}

}  // namespace
}  // namespace gaccd
