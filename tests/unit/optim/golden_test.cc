// Our updates against PyTorch's, 20 in a row (tests/golden/make_optim.py wrote the files).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/optim/norm.h"
#include "daemon/optim/optimizer.h"

namespace gaccd {
namespace {

struct Update {
  double lr = 0;
  std::vector<float> gradient;
  std::vector<float> params;
};
struct Golden {
  double clip = 0;
  std::vector<float> start;
  std::vector<Update> updates;
};

std::vector<float> Floats(std::istringstream& in) {
  std::vector<float> values;
  for (float value = 0; in >> value;) values.push_back(value);
  return values;
}

Golden Read(const std::string& name) {
  std::ifstream file(GACCD_GOLDEN_DIR "/optim_" + name + ".txt");
  EXPECT_TRUE(file.good()) << name;
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    in >> key;
    if (key == "clip") in >> golden.clip;
    if (key == "start") golden.start = Floats(in);
    if (key == "lr") in >> golden.updates.emplace_back().lr;
    if (key == "grad") golden.updates.back().gradient = Floats(in);
    if (key == "params") golden.updates.back().params = Floats(in);
  }
  return golden;
}

struct Case {
  std::string name;
  OptimizerSpec spec;
};

class GoldenTest : public testing::TestWithParam<Case> {};

TEST_P(GoldenTest, FollowsPyTorchFor20Updates) {
  const Golden golden = Read(GetParam().name);
  ASSERT_EQ(golden.updates.size(), 20u);
  ASSERT_EQ(golden.start.size(), 37u);
  auto optimizer = MakeOptimizer(GetParam().spec, std::ssize(golden.start));
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().message();
  std::vector<float> params = golden.start;
  double worst = 0;
  for (std::size_t u = 0; u < golden.updates.size(); ++u) {
    const Update& update = golden.updates[u];
    const GradientNorm norm = GlobalNorm(update.gradient);
    (*optimizer)->Step(params, update.gradient, update.lr, ClipFactor(norm.norm, golden.clip));
    // PyTorch works on whole tensors, so it rounds to fp32 after every operation as we do, but in
    // another order and with fused multiply-adds: a few units in the last place (6e-8) an update. A
    // wrong formula is off by far more than 1e-6.
    for (std::size_t i = 0; i < params.size(); ++i) {
      const double tolerance = 1e-6 * std::max(1.0, std::abs(static_cast<double>(params[i])));
      ASSERT_NEAR(params[i], update.params[i], tolerance) << "update " << u << " parameter " << i;
      worst = std::max(worst, std::abs(static_cast<double>(params[i] - update.params[i])));
    }
  }
  RecordProperty("worst_difference", std::to_string(worst * 1e9) + "e-9");
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenTest,
    testing::Values(Case{"sgd", {0.1, SgdSpec{}}}, Case{"sgd_decay", {0.1, SgdSpec{0, 0.1, false}}},
                    Case{"sgd_momentum", {0.1, SgdSpec{0.9, 0.01, false}}},
                    Case{"sgd_nesterov", {0.1, SgdSpec{0.9, 0.01, true}}},
                    Case{"sgd_clipped", {0.1, SgdSpec{0.5, 0, false}}},
                    Case{"adamw", {0.1, AdamWSpec{0.9, 0.999, 1e-8, 0.01}}},
                    Case{"adamw_other", {0.1, AdamWSpec{0.8, 0.95, 1e-3, 0.3}}},
                    Case{"adamw_clipped", {0.1, AdamWSpec{0.9, 0.999, 1e-8, 0}}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace gaccd
