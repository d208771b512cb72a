// The files of tests/golden/make_mlp.py: what PyTorch computes in double precision.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gaccd {

struct GoldenTensor {
  double torch_error = 0;      // how far PyTorch's own f32 is from `values`, relative to their norm
  std::vector<double> values;  // of a gradient; or its norm and its products with sign vectors
  bool is_products = false;
};

struct GoldenFile {
  std::vector<std::int64_t> widths;
  std::int64_t samples = 0;
  double rate = 0;
  std::map<std::string, std::vector<float>> parameters;  // only small networks
  std::vector<float> features;                           // the same
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
  std::map<std::string, GoldenTensor> gradients;
  GoldenTensor losses;  // the mean loss before each of 20 SGD steps
};

// Fails the test when the file is not there.
[[nodiscard]] GoldenFile ReadGolden(const std::string& name);

// The distance of `found` from the golden gradient, relative to the golden norm;
// for products the root mean square over the sign vectors, which estimates the same.
[[nodiscard]] double ErrorOf(const GoldenTensor& golden, std::span<const float> found);

}  // namespace gaccd
