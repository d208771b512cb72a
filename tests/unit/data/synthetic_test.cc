#include <cmath>

#include "daemon/data/sources.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

TEST(SyntheticTest, SamplesDependOnSeedAndNumber) {
  const SyntheticSpec source{.samples = 100, .features = 3, .outputs = 2, .seed = 5};
  const auto dataset = Opened(source);
  const Batch batch = Gather(*dataset, {7, 3, 7});
  const Batch again = Gather(*Opened(source), {7});
  EXPECT_TRUE(std::equal(again.features.begin(), again.features.end(), batch.features.begin()));
  EXPECT_TRUE(std::equal(again.targets.begin(), again.targets.end(), batch.targets.begin() + 4));
  EXPECT_NE(batch.features[0], batch.features[3]);
  SyntheticSpec other = source;
  other.seed = 6;
  EXPECT_NE(Gather(*Opened(other), {7}).features[0], batch.features[0]);
}

TEST(SyntheticTest, SeedsShareLineAndNoiseIsAsRequested) {
  const auto exact = [](std::uint64_t seed) {
    return Opened(SyntheticSpec{.samples = 4, .features = 1, .noise = 0, .seed = seed});
  };
  const Batch a = Gather(*exact(1), {0, 1});
  const Batch b = Gather(*exact(2), {0, 1});
  const float w = a.targets[0] / a.features[0];
  EXPECT_NEAR(a.targets[1], w * a.features[1], 1e-5);
  EXPECT_NEAR(b.targets[0], w * b.features[0], 1e-5);
  EXPECT_NEAR(b.targets[1], w * b.features[1], 1e-5);

  const std::int64_t samples = 20'000;
  const auto noisy = Opened(SyntheticSpec{.samples = samples, .features = 1, .noise = 0.5});
  double mean = 0;
  double variance = 0;
  double residual = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Batch one = Gather(*noisy, {i});
    const double x = one.features[0];
    const double r = one.targets[0] - w * x;
    mean += x;
    variance += x * x;
    residual += r * r;
  }
  EXPECT_NEAR(mean / samples, 0, 0.03);
  EXPECT_NEAR(variance / samples, 1, 0.05);
  EXPECT_NEAR(std::sqrt(residual / samples), 0.5, 0.02);
}

TEST(SyntheticTest, NormalisesFeaturesOnly) {
  const SyntheticSpec source{.samples = 2, .features = 2};
  const Batch raw = Gather(*Opened(source), {1});
  const Batch scaled = Gather(*Opened(source, {.scale = 2, .mean = 4, .std = 0.5}), {1});
  EXPECT_NEAR(scaled.features[1], (raw.features[1] * 2 - 4) / 0.5F, 1e-6);
  EXPECT_EQ(scaled.targets, raw.targets);
}

TEST(SyntheticTest, RefusesInvalidValues) {
  const auto message = [](const SyntheticSpec& source) {
    return Refused(ErrorKind::kConfig, source);
  };
  EXPECT_THAT(message({.samples = 0}), HasSubstr("found 0, 10 and 1"));
  EXPECT_THAT(message({.samples = 1, .features = -1}), HasSubstr("-1"));
  EXPECT_THAT(message({.samples = 1, .features = 1 << 20, .outputs = 1 << 20}),
              HasSubstr("1048576 x 1048576"));
  EXPECT_THAT(message({.samples = 1, .noise = -0.5}), HasSubstr("-0.5"));
  EXPECT_THAT(message({.samples = 1, .noise = NAN}), HasSubstr("nan"));
  EXPECT_THAT(message({.samples = 1, .noise = 1e38}), HasSubstr("1e+38"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, SyntheticSpec{.samples = 1}, {.scale = 1e38}),
              HasSubstr("scale 1e+38"));
}

}  // namespace
}  // namespace gaccd
