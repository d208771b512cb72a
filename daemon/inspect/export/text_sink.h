// TextSink: what a verb prints, on standard output or in a file that appears whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

// Collects large pieces. Not thread-safe. Without Close() a file is not there, and one that was
// there before stays.
class TextSink {
 public:
  // `out` empty: standard output. Else a file for OutputTarget(), which gets this mode. kIo.
  static Result<TextSink> Open(const std::string& out, unsigned mode = kFileMode);
  TextSink(TextSink&& other) noexcept;
  ~TextSink();

  Status Write(std::string_view text);
  // Gives the file its name: a reader sees the old one or all of the new one.
  Status Close();

 private:
  TextSink() = default;
  Status Flush();

  std::string path_;  // empty: standard output
  std::optional<TemporaryFile> file_;
  std::string text_;
};

}  // namespace gaccd
