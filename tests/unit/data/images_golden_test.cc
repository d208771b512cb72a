// Decoders and transforms against PIL and torchvision (tests/golden/make_pictures.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/data/images/image.h"
#include "daemon/data/images/image_ops.h"
#include "daemon/data/images/image_transform.h"
#include "daemon/data/images/rand_augment.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/support/whole_image.h"

namespace gaccd {
namespace {

using testing::HasSubstr;

std::string PicturePath(const std::string& name) { return GACCD_PICTURES "/" + name; }

std::string ReadPicture(const std::string& name) { return ContentOfFile(PicturePath(name)); }

Result<Image> DecodePicture(const std::string& name, std::int64_t channels = 3) {
  return DecodeImage(name, AsBytes(ReadPicture(name)), channels);
}

std::vector<std::uint8_t> Unhex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Lines of pictures.txt that begin with `key`, after it.
std::vector<std::istringstream> Lines(const std::string& key) {
  std::ifstream file(PicturePath("pictures.txt"));
  std::vector<std::istringstream> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + " ")) lines.emplace_back(line.substr(key.size() + 1));
  }
  EXPECT_FALSE(lines.empty()) << key;
  return lines;
}

// The next `count` numbers of a line.
std::vector<std::int64_t> Take(std::istringstream& line, std::size_t count) {
  std::vector<std::int64_t> numbers(count);
  for (std::int64_t& number : numbers) line >> number;
  return numbers;
}

// The rest of the line are the pixels, to `tolerance` grey levels.
void ExpectPixels(const Image& image, std::istringstream& line, int tolerance = 0) {
  std::string text;
  line >> text;
  const std::vector<std::uint8_t> expected = Unhex(text);
  ASSERT_EQ(image.pixels.size(), expected.size());
  int most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(image.pixels[i] - expected[i]));
  }
  EXPECT_LE(most, tolerance) << line.str().substr(0, 40);
}

TEST(ImagesGoldenTest, DecodesEveryFormatLikePil) {
  for (std::istringstream& line : Lines("decode")) {
    std::string name;
    line >> name;
    const auto size = Take(line, 3);  // channels, height, width
    const Image image = ValueOrThrow(DecodePicture(name, size[0]));
    EXPECT_EQ((std::vector{image.channels, image.height, image.width}), size) << name;
    ExpectPixels(image, line, /*tolerance=*/1);
  }
}

TEST(ImagesGoldenTest, RefusesUnsupportedByName) {
  for (std::istringstream& line : Lines("refuse")) {
    std::string name;
    std::string words;
    line >> name >> std::ws;
    std::getline(line, words);
    const auto image = DecodePicture(name);
    ASSERT_FALSE(image.ok()) << name;
    EXPECT_EQ(image.status().kind(), ErrorKind::kData);
    EXPECT_THAT(image.status().message(), testing::AllOf(HasSubstr(name), HasSubstr(words)));
  }
}

TEST(ImagesGoldenTest, RefusesTruncatedFile) {
  for (const char* name : {"420.jpg", "progressive.jpg", "cmyk.jpg", "rgba.png", "palette.png",
                           "lossy.webp", "alpha.webp"}) {
    const std::string whole = ReadPicture(name);
    for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
      const auto image = DecodeImage(name, AsBytes(whole.substr(0, bytes)), 3);
      ASSERT_FALSE(image.ok()) << name << " " << bytes << " of " << whole.size();
      EXPECT_EQ(image.status().kind(), ErrorKind::kData);
    }
  }
}

constexpr const char* kLarger[] = {"part_420.jpg",  "part_422.jpg",  "part_444.jpg",
                                   "part_grey.jpg", "part_cmyk.jpg", "part_progressive.jpg",
                                   "base.png",      "lossy.webp"};

TEST(ImagesGoldenTest, PartHasPixelsOfWhole) {
  for (const char* name : kLarger) {
    const std::string file = ReadPicture(name);
    const Image whole = ValueOrThrow(DecodeImage(name, AsBytes(file), 3));
    const auto row = static_cast<std::size_t>(3 * whole.width);
    for (std::int64_t i = 0; i < 400; ++i) {
      const Box box{.top = i * 7 % whole.height, .left = i * 11 % whole.width};
      Box needed = box;
      needed.height = 1 + i * 5 % (whole.height - box.top);
      needed.width = 1 + i * 3 % (whole.width - box.left);
      const auto ask = [&](std::int64_t height, std::int64_t width) -> Result<Box> {
        EXPECT_EQ(height, whole.height);
        EXPECT_EQ(width, whole.width);
        return needed;
      };
      const auto [image, part, held] =
          ValueOrThrow(DecodeImagePart(name, AsBytes(file), 3, ask, /*whole_file=*/i % 2 == 0));
      ASSERT_EQ((std::pair{part.height, part.width}), (std::pair{needed.height, needed.width}));
      // libjpeg holds the coefficients of several scans: 12 x 10 and twice 6 x 5 blocks of 64.
      ASSERT_EQ(held, name == std::string_view("part_progressive.jpg") ? 180 * 64 * 2 : 0);
      for (std::int64_t y = 0; y < part.height; ++y) {
        const auto* found = image.pixels.data() + 3 * ((part.top + y) * image.width + part.left);
        const auto* expected =
            whole.pixels.data() + static_cast<std::size_t>(needed.top + y) * row + 3 * needed.left;
        ASSERT_TRUE(std::equal(found, found + 3 * part.width, expected)) << name << " " << i;
      }
    }
  }
}

TEST(ImagesGoldenTest, DecodesPartOnlyAndChecksRestOnRequest) {
  const std::string file = ReadPicture("part_420.jpg");
  const auto decode = [&](std::size_t bytes, bool whole_file) {
    return DecodeImagePart(
        "p", AsBytes(file.substr(0, bytes)), 3,
        [](std::int64_t, std::int64_t) -> Result<Box> {
          return Box{2, 30, 5, 6};
        },
        whole_file);
  };
  const ImagePart part = ValueOrThrow(decode(file.size(), true));
  EXPECT_LE(part.image.height, 16);
  EXPECT_LE(part.image.width, 48);
  for (std::size_t bytes = 0; bytes + 1 < file.size(); ++bytes) {
    ASSERT_FALSE(decode(bytes, true).ok()) << bytes << " of " << file.size();
  }
  EXPECT_THAT(decode(file.size() - 100, true), HasMessage(HasSubstr("p: damaged JPEG image")));
  EXPECT_TRUE(decode(file.size() - 100, false).ok());
  EXPECT_FALSE(decode(file.size() / 6, false).ok());
  EXPECT_THAT(DecodeImagePart("p", AsBytes(file), 3,
                              [](std::int64_t, std::int64_t) -> Result<Box> {
                                return Status(ErrorKind::kData, "too small");
                              }),
              HasMessage("p: too small"));
}

TEST(ImagesGoldenTest, RefusesLargeImagesBeforeAllocation) {
  const std::string file = ReadPicture("rgb.png");
  EXPECT_TRUE(DecodeImage("x", AsBytes(file), 3, 11 * 14).ok());
  EXPECT_THAT(DecodeImage("x", AsBytes(file), 3, 11 * 14 - 1),
              HasMessage(HasSubstr("expected 1 to 153 pixels, found 14 x 11")));
  // 65,500 x 65,500 pixels, as its header says.
  std::string bomb = ReadPicture("420.jpg");
  const std::size_t frame = bomb.find("\xFF\xC0") + 5;
  for (std::size_t i = frame; i < frame + 4; i += 2) {
    bomb[i] = '\xFF';
    bomb[i + 1] = '\xDC';
  }
  EXPECT_THAT(DecodeImage("bomb", AsBytes(bomb), 3),
              HasMessage(HasSubstr("bomb: expected 1 to 67108864 pixels, found 65500 x 65500")));
}

std::string BigEndian(std::size_t number) {
  std::string bytes(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(number >> (24 - 8 * i));
  return bytes;
}

std::string PngChunk(const std::string& type, const std::string& content) {
  const std::string text = type + content;
  const auto sum =
      ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  return BigEndian(content.size()) + text + BigEndian(sum);
}

// 40 texts of 8 kB that unpack to 7.9 MB each.
TEST(ImagesGoldenTest, TextsOfPngAreNotUnpacked) {
  const std::string large(7'900'000, 'a');
  uLongf bytes = ::compressBound(large.size());
  std::string packed(bytes, '\0');
  ASSERT_EQ(::compress(reinterpret_cast<Bytef*>(packed.data()), &bytes,
                       reinterpret_cast<const Bytef*>(large.data()), large.size()),
            Z_OK);
  packed.resize(bytes);
  const std::string text = PngChunk("zTXt", std::string("Comment\0\0", 9) + packed);
  const std::string plain = ReadPicture("palette.png");
  std::string file = plain;
  constexpr std::size_t kHeaderBytes = 33;  // the signature and IHDR
  for (int i = 0; i < 40; ++i) file.insert(kHeaderBytes, text);
  const auto decode = [&] {
    const auto peak_kb = [] {
      rusage used{};
      ::getrusage(RUSAGE_SELF, &used);
      return used.ru_maxrss;
    };
    const Image expected = ValueOrThrow(DecodeImage("plain", AsBytes(plain), 3));
    const auto before = peak_kb();
    const Image image = ValueOrThrow(DecodeImage("texts", AsBytes(file), 3));
    std::_Exit(image.pixels == expected.pixels && peak_kb() < before + 100'000 ? 0 : 1);
  };
  EXPECT_EXIT(decode(), ::testing::ExitedWithCode(0), "");
}

TEST(ImagesGoldenTest, ResizeIsBitIdenticalToPil) {
  const Image base = ValueOrThrow(DecodePicture("base.png"));
  for (std::istringstream& line : Lines("resize")) {
    const auto n = Take(line, 6);
    ExpectPixels(ResizeImage(base, {n[0], n[1], n[2], n[3]}, n[4], n[5], {0, 0, n[4], n[5]}), line);
  }
}

// Features without normalisation are the pixels.
Image Transformed(const ImageTransform& transform, const Image& image) {
  const ImageParameters drawn = ValueOrThrow(transform.Draw(image.height, image.width, 1));
  std::vector<float> features(static_cast<std::size_t>(3 * transform.height() * transform.width()));
  transform.Apply(image, drawn, features.data());
  return transform.Restore(features.data());
}

TEST(ImagesGoldenTest, CentreCropEqualsTorchvision) {
  const Image base = ValueOrThrow(DecodePicture("base.png"));
  for (std::istringstream& line : Lines("center")) {
    const auto n = Take(line, 3);
    const ImagesSpec source{.size = {n[1], n[2]}, .crop = CenterCropSpec{.resize = n[0]}};
    ExpectPixels(Transformed(ValueOrThrow(ImageTransform::Make(source, {})), base), line);
  }
}

TEST(ImagesGoldenTest, ColorsEqualTorchvision) {
  const Image base = ValueOrThrow(DecodePicture("base.png"));
  for (std::istringstream& line : Lines("color")) {
    std::string name;
    double factor = 0;
    line >> name >> factor;
    Image image = base;
    if (name == "brightness") AdjustBrightness(image, factor);
    if (name == "contrast") AdjustContrast(image, factor);
    if (name == "saturation") AdjustSaturation(image, factor);
    if (name == "hue") AdjustHue(image, factor);
    ExpectPixels(image, line);
  }
}

// By torchvision's name.
AugmentKind ParseAugmentKind(const std::string& name) {
  for (std::int64_t i = 0; i < kAugmentKinds; ++i) {
    if (Name(static_cast<AugmentKind>(i)) == name) return static_cast<AugmentKind>(i);
  }
  ADD_FAILURE() << name;
  return AugmentKind::kIdentity;
}

TEST(ImagesGoldenTest, AugmentationsEqualTorchvision) {
  const Image base = ValueOrThrow(DecodePicture("base.png"));
  std::set<AugmentKind> seen;
  for (std::istringstream& line : Lines("augment")) {
    std::string name;
    double magnitude = 0;
    line >> name >> magnitude;
    Image image = base;
    Augment(image, {ParseAugmentKind(name), magnitude});
    seen.insert(ParseAugmentKind(name));
    ExpectPixels(image, line);
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kAugmentKinds));
}

TEST(ImagesGoldenTest, RandAugmentEqualsTorchvisionForSameNumbers) {
  for (std::istringstream& line : Lines("operations")) {
    const auto n = Take(line, 6);  // key, bins, magnitude, height, width, operations
    const ImagesSpec source{.size = {n[3], n[4]},
                            .augmentation = RandAugmentSpec{
                                .num_ops = n[5], .magnitude = n[2], .num_magnitude_bins = n[1]}};
    const auto transform = ValueOrThrow(ImageTransform::Make(source, {}));
    const auto drawn = ValueOrThrow(transform.Draw(50, 50, static_cast<std::uint64_t>(n[0])));
    ASSERT_EQ(std::ssize(drawn.augmentations), n[5]);
    for (const Augmentation& found : drawn.augmentations) {
      std::string name;
      double magnitude = 0;
      line >> name >> magnitude;
      EXPECT_EQ(Name(found.kind), name) << line.str();
      EXPECT_EQ(found.magnitude, magnitude) << line.str();
    }
  }
}

TEST(ImagesGoldenTest, RandomCropsEqualTorchvisionForSameNumbers) {
  const auto transform =
      ValueOrThrow(ImageTransform::Make({.size = {8}, .crop = RandomResizedCropSpec{}}, {}));
  for (std::istringstream& line : Lines("crop")) {
    const auto n = Take(line, 7);
    const auto drawn = ValueOrThrow(transform.Draw(n[1], n[2], static_cast<std::uint64_t>(n[0])));
    EXPECT_EQ(drawn.from, (Box{n[3], n[4], n[5], n[6]})) << line.str();
  }
  for (std::istringstream& line : Lines("erase")) {
    const auto n = Take(line, 7);
    const ImagesSpec source{.size = {n[1], n[2]}, .random_erasing = RandomErasingSpec{.p = 1}};
    const auto erasing = ValueOrThrow(ImageTransform::Make(source, {}));
    const auto drawn = ValueOrThrow(erasing.Draw(50, 50, static_cast<std::uint64_t>(n[0])));
    EXPECT_EQ(drawn.erased.value_or(Box{}), (Box{n[3], n[4], n[5], n[6]})) << line.str();
  }
}

}  // namespace
}  // namespace gaccd
