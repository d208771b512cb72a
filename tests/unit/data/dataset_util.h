// Opens data sets and reads from them, for the tests of the readers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/data/dataset.h"

namespace gaccd {

struct Batch {
  std::vector<float> features;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
};

inline Batch Gather(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  const auto n = indices.size();
  Batch batch;
  batch.features.resize(n * static_cast<std::size_t>(dataset.spec().feature_elements()));
  batch.labels.resize(n);
  batch.targets.resize(n * static_cast<std::size_t>(dataset.spec().target_width));
  dataset.Gather(indices, {static_cast<std::int64_t>(n), batch.features.data(), batch.labels.data(),
                           batch.targets.data()});
  return batch;
}

inline std::unique_ptr<Dataset> Opened(const SourceSpec& source,
                                       const NormalizeSpec& normalize = {}) {
  auto dataset = OpenDataset(source, normalize);
  if (!dataset.ok()) throw std::runtime_error(dataset.status().message());  // fails the test
  return std::move(dataset).value();
}

// The message of the refusal, which must be of that kind.
inline std::string Refused(ErrorKind kind, const SourceSpec& source,
                           const NormalizeSpec& normalize = {}) {
  const auto dataset = OpenDataset(source, normalize);
  EXPECT_FALSE(dataset.ok());
  if (dataset.ok()) return "";
  EXPECT_EQ(ErrorKindName(dataset.status().kind()), ErrorKindName(kind));
  return dataset.status().message();
}

}  // namespace gaccd
