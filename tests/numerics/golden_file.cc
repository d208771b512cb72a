#include "tests/numerics/golden_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

template <typename T>
std::vector<T> Rest(std::istringstream& in) {
  std::vector<T> values;
  for (T value{}; in >> value;) values.push_back(value);
  return values;
}

GoldenTensor TensorOf(std::istringstream& in, const std::string& kind) {
  GoldenTensor tensor;
  std::string word;
  in >> word >> tensor.torch_error >> word;  // error E values
  tensor.values = Rest<double>(in);
  tensor.is_products = kind == "products";
  return tensor;
}

double Product(std::size_t index, std::span<const float> values) {
  const std::uint64_t key = StreamKey(1000, index);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double sign = (StreamValue(key, i) >> 63) != 0 ? 1 : -1;
    sum += sign * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

GoldenFile ReadGolden(const std::string& name) {
  std::ifstream file(GACCD_GOLDEN_DIR "/" + name + ".txt");
  EXPECT_TRUE(file.good()) << name;
  GoldenFile golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string key;
    std::string tensor;
    in >> key;
    if (key == "widths") golden.widths = Rest<std::int64_t>(in);
    if (key == "samples") in >> golden.samples;
    if (key == "rate") in >> golden.rate;
    if (key == "features") golden.features = Rest<float>(in);
    if (key == "labels") golden.labels = Rest<std::int32_t>(in);
    if (key == "targets") golden.targets = Rest<float>(in);
    if (key == "losses") golden.losses = TensorOf(in, key);
    if (key == "parameter" && in >> tensor) golden.parameters[tensor] = Rest<float>(in);
    if ((key == "gradient" || key == "products") && in >> tensor) {
      golden.gradients[tensor] = TensorOf(in, key);
    }
  }
  return golden;
}

double ErrorOf(const GoldenTensor& golden, std::span<const float> found) {
  double squares = 0;
  if (golden.is_products) {
    const std::size_t vectors = golden.values.size() - 1;
    for (std::size_t i = 0; i < vectors; ++i) {
      squares += std::pow(Product(i, found) - golden.values[i + 1], 2);
    }
    return std::sqrt(squares / static_cast<double>(vectors)) / golden.values[0];
  }
  EXPECT_EQ(found.size(), golden.values.size());
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    squares += std::pow(static_cast<double>(found[i]) - golden.values[i], 2);
    norm += std::pow(golden.values[i], 2);
  }
  return std::sqrt(squares / norm);
}

}  // namespace gaccd
