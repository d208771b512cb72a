// The tokenizer.json that tools/prepare leaves next to token arrays. Weights and data belong
// together only where the same ids mean the same tokens.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// Where the tokenizer of a source would be; whether it is there is not asked. Empty: no tokens.
[[nodiscard]] std::string TokenizerPath(const SourceSpec& source);

// A whole tokenizer.json. kIo; kData where it is too large.
[[nodiscard]] Result<std::string> ReadTokenizer(const std::string& path);

// kData where the text of a tokenizer.json is nested so deep that it is none.
[[nodiscard]] Status CheckTokenizerDepth(const std::string& path, std::string_view text);

// CheckTokenizers() for the texts of two files.
[[nodiscard]] Status CompareTokenizers(const std::string& first, std::string_view first_text,
                                       const std::string& path, std::string_view text);

// The tokenizers of data.train, of data.eval and next to `weights` (a file; empty: none), where
// they are there, must have the same vocabulary, and normalizers and pre-tokenizers of the same
// types and settings. kData with two of them and the first difference otherwise, and for a file
// that is no tokenizer; kIo. One alone is not read.
[[nodiscard]] Status CheckTokenizers(const Job& job, const std::string& weights);

}  // namespace gaccd
