// Opens data sets and reads from them, for the tests of the readers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/data/dataset.h"

namespace gaccd {

struct Batch {
  std::vector<float> features;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;
};

// Of the tensor of that name; empty when there is none. REQUIRES: T is its type.
template <typename T>
std::vector<T> Values(const SampleSpec& spec, const BatchMemory& memory, std::string_view name) {
  const TensorSpec* tensor = spec.Find(name);
  if (tensor == nullptr) return {};
  EXPECT_EQ(tensor->dtype, DTypeOf<T>) << name;
  const auto bytes = memory.bytes(static_cast<std::size_t>(tensor - spec.tensors.data()));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline Batch Gather(const Dataset& dataset, const std::vector<std::int64_t>& indices) {
  BatchMemory memory(dataset.spec(), std::ssize(indices));
  dataset.Gather(indices, memory.view());
  return {Values<float>(dataset.spec(), memory, "features"),
          Values<std::int32_t>(dataset.spec(), memory, "labels"),
          Values<float>(dataset.spec(), memory, "targets")};
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
