// Data sets of token ids: arrays with a row for each sample, and one long stream that is cut into
// windows. All of it stays mapped; ids become i32 when they are read.
#pragma once

#include <memory>
#include <optional>

#include "daemon/data/array.h"

namespace gaccd {

struct TokenArrays {
  Array tokens;                   // [samples, T]
  std::optional<Array> lengths;   // [samples], in [1, T]
  std::optional<Array> segments;  // [samples, T], in [0, segment_types)
  std::optional<Array> labels;    // [samples] or [samples, T], in [0, classes)
  std::optional<Array> weights;   // one for every label, at least 0
};

struct TokenLimits {
  std::int64_t vocabulary = 0;
  std::int64_t classes = 0;  // 0: labels are tokens
  std::int64_t segment_types = 2;
  std::int32_t ignored_label = kIgnoredLabel;  // among labels [samples, T]; of others no class
};

// The tensors "tokens", "lengths", "segments", "labels" and "weights" of those that are there.
// Errors: kData with file, sample and value, for a value outside of its range (unless `rules` let
// the sample be replaced), for shapes that do not fit, and for floats.
Result<std::unique_ptr<Dataset>> MakeTokenDataset(TokenArrays arrays, const TokenLimits& limits,
                                                  const BadRecordRules& rules = {},
                                                  NodeShare* share = nullptr);

// Sample i are the elements [i * length, i * length + length] of `stream` [elements]: "tokens" are
// all but the last, "labels" all but the first. What is left at the end is not used. Errors: kData
// as above, and when there is not one sample.
Result<std::unique_ptr<Dataset>> MakeStreamDataset(const Array& stream, std::int64_t length,
                                                   std::int64_t vocabulary,
                                                   const BadRecordRules& rules = {},
                                                   NodeShare* share = nullptr);

}  // namespace gaccd
