// LineReader: the lines of a file that may grow or be truncated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// The file is only open while a piece is read, because a run has a file for each of hundreds of
// ranks. Not thread-safe.
class LineReader {
 public:
  // Longer lines are skipped.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  // kLastPiece: from the first complete line in the last `piece` bytes of the current file.
  enum class From : std::uint8_t { kBegin, kLastPiece };

  // piece: bytes per read.
  explicit LineReader(std::string path, std::size_t piece = std::size_t{64} << 10,
                      From from = From::kBegin);

  // The next complete line without line break, valid until the next call. nullopt: the end so far;
  // later calls see new lines. A missing file has no lines.
  std::optional<std::string_view> Next();

  [[nodiscard]] const std::string& path() const { return path_; }
  // The offset of the next line. SkipTo() REQUIRES: Next() was not called, and a line begins there.
  [[nodiscard]] std::uint64_t offset() const { return offset_ - torn_bytes(); }
  void SkipTo(std::uint64_t offset) { offset_ = offset; }
  // The incomplete line at the end: truncated, or being written.
  [[nodiscard]] std::size_t torn_bytes() const { return buffer_.size() - begin_; }
  [[nodiscard]] std::string_view torn() const { return std::string_view(buffer_).substr(begin_); }
  [[nodiscard]] std::int64_t too_long() const { return too_long_; }
  // kIo if the existing file could not be read.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  bool Fill();

  std::string path_;
  std::size_t piece_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the next line in buffer_
  std::uint64_t offset_ = 0;
  bool skips_ = false;  // skipping the rest of a line
  std::int64_t too_long_ = 0;
  Status status_;
};

}  // namespace gaccd
