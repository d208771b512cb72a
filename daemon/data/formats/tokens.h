// Data sets of token ids: arrays with one row per sample, or one long stream that is divided into
// windows. The arrays remain mapped; ids are converted to i32 when read.
#pragma once

#include <memory>
#include <optional>

#include "daemon/data/formats/array.h"

namespace gaccd {

struct TokenArrays {
  Array tokens;                   // [samples, T]
  std::optional<Array> lengths;   // [samples], in [1, T]
  std::optional<Array> segments;  // [samples, T], in [0, segment_types)
  std::optional<Array> labels;    // [samples] or [samples, T], in [0, classes)
  std::optional<Array> weights;   // one per label, at least 0
};

struct TokenLimits {
  std::int64_t vocabulary = 0;
  std::int64_t classes = 0;  // 0: labels are tokens
  std::int64_t segment_types = 2;
  // For labels [samples, T]; for labels [samples] it must not be a class.
  std::int32_t ignored_label = kIgnoredLabel;
};

// Samples have the tensors "tokens", "lengths", "segments", "labels" and "weights" of the given
// arrays. Errors: kData with file, sample and value for a value outside of its range (unless
// `rules` allow the sample to be replaced), for shapes that do not match, and for floats; kConfig
// for `limits`.
Result<std::unique_ptr<Dataset>> MakeTokenDataset(TokenArrays arrays, const TokenLimits& limits,
                                                  const BadRecordRules& rules = {},
                                                  NodeShare* share = nullptr);

// Sample i consists of the elements [i * length, i * length + length] of `stream` [elements]:
// "tokens" are all but the last, "labels" all but the first. The rest of the stream is not used.
// Errors: as above, and kData if there is no complete sample.
Result<std::unique_ptr<Dataset>> MakeStreamDataset(const Array& stream, std::int64_t length,
                                                   std::int64_t vocabulary,
                                                   const BadRecordRules& rules = {},
                                                   NodeShare* share = nullptr);

}  // namespace gaccd
