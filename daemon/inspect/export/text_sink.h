// TextSink: output of a verb, to standard output or atomically to a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

// Buffered. Not thread-safe. Without Close() no file is created or replaced.
class TextSink {
 public:
  // out: a file, see OutputTarget(), or empty for standard output. mode: of the file. kIo.
  static Result<TextSink> Open(const std::string& out, unsigned mode = kFileMode);
  TextSink(TextSink&& other) noexcept;
  ~TextSink();

  Status Write(std::string_view text);
  // Renames the temporary file to its final name.
  Status Close();

 private:
  TextSink() = default;
  Status Flush();

  std::string path_;  // empty: standard output
  std::optional<TemporaryFile> file_;
  std::string text_;
};

}  // namespace gaccd
