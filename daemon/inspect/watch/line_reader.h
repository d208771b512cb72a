// LineReader: the lines of a file that may still grow, or be cut off anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// The file is open only while a piece of it is read: a run has a file for each of hundreds of
// ranks. Not thread-safe.
class LineReader {
 public:
  // A longer line is passed over.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  // kLastPiece: at the first whole line of the last `piece` bytes of the file as it is now.
  enum class From : std::uint8_t { kBegin, kLastPiece };

  // `piece`: bytes that are read at once.
  explicit LineReader(std::string path, std::size_t piece = std::size_t{64} << 10,
                      From from = From::kBegin);

  // The next whole line without its break, valid until the next call. None: the end so far; a later
  // call sees what was written meanwhile. A file that does not exist has no lines.
  std::optional<std::string_view> Next();

  [[nodiscard]] const std::string& path() const { return path_; }
  // Where the line begins that Next() has not returned yet; REQUIRES of SkipTo(): Next() was not
  // called, and a line begins there.
  [[nodiscard]] std::uint64_t offset() const { return offset_ - torn_bytes(); }
  void SkipTo(std::uint64_t offset) { offset_ = offset; }
  // Bytes after the last line break: of a line that was cut off, or is being written.
  [[nodiscard]] std::size_t torn_bytes() const { return buffer_.size() - begin_; }
  [[nodiscard]] std::string_view torn() const { return std::string_view(buffer_).substr(begin_); }
  [[nodiscard]] std::int64_t too_long() const { return too_long_; }
  // kIo: why the lines ended where a file is there.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  bool Fill();

  std::string path_;
  std::size_t piece_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the next line in buffer_
  std::uint64_t offset_ = 0;
  bool skips_ = false;  // inside a line that is too long
  std::int64_t too_long_ = 0;
  Status status_;
};

}  // namespace gaccd
