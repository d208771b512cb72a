#include <sys/stat.h>

#include "daemon/data/formats/array.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

const std::string kIdxImages = IdxHeader(8, {5, 2, 3}) + Counting(30);
const std::string kLabels = IdxHeader(8, {5}) + Counting(5);

class IdxTest : public testing::Test {
 protected:
  IdxSpec Source(std::string_view images, std::string_view labels, std::int64_t classes = 10) {
    return {folder_.Write("images", images), folder_.Write("labels", labels), classes};
  }
  TempFolder folder_;
};

TEST_F(IdxTest, ReadsPlainAndCompressed) {
  for (const bool compressed : {false, true}) {
    const auto dataset =
        Opened(compressed ? Source(Gzip(kIdxImages), Gzip(kLabels)) : Source(kIdxImages, kLabels),
               {.scale = 0.5, .mean = 1, .std = 2});
    EXPECT_EQ(dataset->size(), 5);
    EXPECT_THAT(dataset->spec().tensors[0].shape, testing::ElementsAre(2, 3));
    EXPECT_EQ(dataset->spec().classes, 10);
    const Batch batch = Gather(*dataset, {4, 0});
    EXPECT_THAT(batch.labels, testing::ElementsAre(4, 0));
    // (stored / 2 - 1) / 2
    EXPECT_THAT(batch.features, testing::ElementsAre(5.5F, 5.75F, 6.F, 6.25F, 6.5F, 6.75F, -.5F,
                                                     -.25F, 0.F, .25F, .5F, .75F));
  }
}

TEST_F(IdxTest, NormalisesEveryByteByFormula) {
  const auto dataset =
      Opened(Source(IdxHeader(8, {1, 256}) + Counting(256), IdxHeader(8, {1}) + Counting(1)),
             {.scale = 1 / 255.0, .mean = 0.2860, .std = 0.3530});
  const Batch batch = Gather(*dataset, {0});
  for (std::size_t i = 0; i < 256; ++i) {
    const double expected = (static_cast<double>(i) / 255 - 0.2860) / 0.3530;
    EXPECT_NEAR(batch.features[i], expected, 3e-7);
  }
}

// As gzip(1) does it. More than one chunk of zeros, and one byte.
TEST_F(IdxTest, IgnoresZerosAfterGzipFile) {
  for (const std::size_t zeros : {1, 511, 100'000}) {
    const std::string padding(zeros, '\0');
    const auto dataset = Opened(Source(Gzip(kIdxImages) + padding, Gzip(kLabels) + padding));
    EXPECT_EQ(Gather(*dataset, {1}).features,
              Gather(*Opened(Source(kIdxImages, kLabels)), {1}).features);
    for (const std::string& garbage : {std::string("x"), Gzip(kIdxImages).substr(0, 20)}) {
      EXPECT_THAT(Refused(ErrorKind::kData, Source(Gzip(kIdxImages) + padding + garbage, kLabels)),
                  HasSubstr("damaged"));
    }
  }
}

TEST_F(IdxTest, ReadsAGzipFileOfSeveralMembers) {
  const auto dataset =
      Opened(Source(Gzip(kIdxImages.substr(0, 9)) + Gzip(kIdxImages.substr(9)), kLabels));
  EXPECT_EQ(Gather(*dataset, {1}).features[0], 6.F);
}

TEST_F(IdxTest, FollowsLinks) {
  const IdxSpec source = Source(kIdxImages, kLabels);
  std::filesystem::create_symlink(source.images, folder_.Path("link"));
  EXPECT_EQ(Opened(IdxSpec{folder_.Path("link"), source.labels, 10})->size(), 5);
}

TEST_F(IdxTest, RefusesNonFiles) {
  const IdxSpec good = Source(kIdxImages, kLabels);
  const auto message = [&](const std::string& path) {
    return Refused(ErrorKind::kIo, IdxSpec{path, good.labels, 10});
  };
  EXPECT_THAT(message(folder_.Path("missing")),
              AllOf(HasSubstr(folder_.Path("missing")), HasSubstr("No such file")));
  EXPECT_THAT(message(folder_.Path("")), HasSubstr("found a directory"));
  ASSERT_EQ(mkfifo(folder_.Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(folder_.Path("fifo")), HasSubstr("found a FIFO"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("found a device"));
}

struct Damage {
  std::string images;
  std::string labels;
  std::vector<std::string> parts;  // what the message must hold
};

TEST_F(IdxTest, RefusesDamagedContent) {
  const Damage cases[] = {
      {kIdxImages.substr(0, 3), kLabels, {"images", "truncated", "4 bytes of header", "found 3"}},
      {kIdxImages.substr(0, 9), kLabels, {"truncated", "header", "found"}},
      {IdxHeader(8, {5, 2, 3}).replace(0, 1, 1, 1), kLabels, {"not an IDX file", "found 1 0"}},
      {IdxHeader(13, {5, 2, 3}) + Counting(120), kLabels, {"element type 8", "13", "float"}},
      {IdxHeader(0x77, {5, 2, 3}) + Counting(30), kLabels, {"119", "unknown"}},
      {std::string("\0\0\x08\0", 4), kLabels, {"1 to 8", "found 0"}},
      {std::string("\0\0\x08\x09", 4) + Counting(36), kLabels, {"1 to 8", "found 9"}},
      {kIdxImages.substr(0, kIdxImages.size() - 1), kLabels, {"expected 30", "found 29"}},
      {kIdxImages + "x", kLabels, {"expected 30", "found"}},
      {IdxHeader(8, {5}) + Counting(5), kLabels, {"[samples, ...]", "found shape [5]"}},
      {IdxHeader(8, {0, 2, 3}), IdxHeader(8, {0}), {"at least one sample", "[0, 2, 3]"}},
      {IdxHeader(8, {5, 0, 3}), kLabels, {"at least one feature", "[5, 0, 3]"}},
      {kIdxImages, IdxHeader(8, {4}) + Counting(4), {"labels", "expected 5", "found 4"}},
      {kIdxImages, IdxHeader(8, {5, 1}) + Counting(5), {"labels of shape [samples]", "[5, 1]"}},
      {kIdxImages, IdxHeader(8, {5}) + "\1\2\3\x0a\4", {"[0, 10)", "found 10", "sample 3"}},
      {IdxHeader(8, {0xffffffff, 0xffffffff, 0xffffffff}), kLabels, {"does not fit 63 bits"}},
      {IdxHeader(8, {0x7fffffff, 0x7fffffff}), kLabels, {"4611686014132420609"}},
  };
  for (const Damage& damage : cases) {
    const std::string plain = Refused(ErrorKind::kData, Source(damage.images, damage.labels));
    for (const std::string& part : damage.parts) EXPECT_THAT(plain, HasSubstr(part));
    const std::string compressed =
        Refused(ErrorKind::kData, Source(Gzip(damage.images), Gzip(damage.labels)));
    EXPECT_THAT(compressed, HasSubstr(folder_.Path("")));
  }
}

TEST_F(IdxTest, RefusesDamagedCompression) {
  const std::string good = Gzip(kIdxImages);
  const auto message = [&](const std::string& images) {
    return Refused(ErrorKind::kData, Source(images, kLabels));
  };
  for (std::size_t length = 2; length < good.size(); ++length) {
    EXPECT_THAT(message(good.substr(0, length)), HasSubstr("truncated")) << length;
  }
  std::string wrong_sum = good;
  wrong_sum[good.size() - 8] ^= 1;  // CRC-32 and length are the last eight bytes
  EXPECT_THAT(message(wrong_sum), HasSubstr("incorrect data check"));
  EXPECT_THAT(message(good + "garbage"), HasSubstr("damaged"));
  EXPECT_THAT(message(Gzip(kIdxImages + "x")), AllOf(HasSubstr("expected 30"), HasSubstr("more")));
}

// A header that promises more than deflate can hold in so few bytes.
TEST_F(IdxTest, RefusesHeaderLargerThanFile) {
  const std::string bomb = Gzip(IdxHeader(8, {1'000'000, 1000, 1000}) + Counting(1000));
  EXPECT_THAT(Refused(ErrorKind::kData, Source(bomb, kLabels)),
              AllOf(HasSubstr("1000000000000"), HasSubstr("can hold at most")));
}

TEST_F(IdxTest, RefusesInvalidSource) {
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source(kIdxImages, kLabels, 0)), HasSubstr("found 0"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source(kIdxImages, kLabels), {.std = 0}),
              HasSubstr("std 0"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source(kIdxImages, kLabels), {.scale = 1e300}),
              HasSubstr("1e+300"));
}

TEST(FashionMnistTest, ReadsCompletely) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const auto dataset = Opened(
      IdxSpec{folder + "train-images-idx3-ubyte.gz", folder + "train-labels-idx1-ubyte.gz", 10},
      {.scale = 1 / 255.0, .mean = 0.2860, .std = 0.3530});
  ASSERT_EQ(dataset->size(), 60'000);
  ASSERT_EQ(dataset->spec().tensors[0].elements(), 784);
  double sum = 0;
  double squares = 0;
  std::vector<std::int64_t> classes(10);
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    const Batch batch = Gather(*dataset, {i});
    for (const float feature : batch.features) {
      sum += feature;
      squares += feature * feature;
    }
    ++classes[static_cast<std::size_t>(batch.labels[0])];
  }
  const double count = 60'000 * 784.0;
  EXPECT_NEAR(sum / count, 0, 1e-3);  // so the constants of the job fit the data
  EXPECT_NEAR(squares / count, 1, 1e-3);
  EXPECT_THAT(classes, testing::Each(6000));
}

}  // namespace
}  // namespace gaccd
