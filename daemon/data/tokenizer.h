// The tokenizer.json that tools/prepare writes next to token arrays. Weights and data are
// compatible only if the same ids mean the same tokens.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// The expected path of the tokenizer of a source, which need not exist. Empty: no tokens.
[[nodiscard]] std::string TokenizerPath(const SourceSpec& source);

// Reads a tokenizer.json. kIo; kData if it is too large.
[[nodiscard]] Result<std::string> ReadTokenizer(const std::string& path);

// kData if the JSON is nested too deep for a tokenizer.json.
[[nodiscard]] Status CheckTokenizerDepth(const std::string& path, std::string_view text);

// CheckTokenizers() for the content of two files.
[[nodiscard]] Status CompareTokenizers(const std::string& first, std::string_view first_text,
                                       const std::string& path, std::string_view text);

// kData with two files and the first difference unless the existing tokenizers of data.train, of
// data.eval and next to `weights` (a file; empty: none) have the same vocabulary, and normalizers
// and pre-tokenizers of the same types and settings; also for a file that is not a tokenizer. kIo.
// A single one is not read.
[[nodiscard]] Status CheckTokenizers(const Job& job, const std::string& weights);

}  // namespace gaccd
