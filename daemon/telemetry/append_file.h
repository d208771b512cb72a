// AppendFile: lines at the end of a file, one write(2) each where the disk takes it whole. A line
// that cannot be written is dropped and counted; after a half line the next one begins anew. Every
// kLookPeriod a line first looks whether the file is still there: one that was removed is made
// again, and the lines since the last look count as dropped. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

class AppendFile {
 public:
  // `file` is open for appending at `path`; `mode` is that of the file when it is made again.
  AppendFile(FileDescriptor file, std::string path, unsigned mode = kFileMode)
      : file_(std::move(file)), path_(std::move(path)), mode_(mode) {}

  static constexpr std::chrono::seconds kLookPeriod{10};

  enum class Counted : std::uint8_t { kYes, kNo };

  // A line break is added if it has none. false: the line is lost, and counted as such if it is to
  // be counted.
  bool Append(std::string line, Counted counted = Counted::kYes);
  void ReopenIfRemoved();
  // Waits until the disk has it.
  void Sync();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }
  // Failed calls, and the first of them.
  [[nodiscard]] std::int64_t failures() const { return failures_; }
  [[nodiscard]] const Status& first_failure() const { return first_failure_; }

 private:
  void Fail(Status status);

  FileDescriptor file_;
  std::string path_;
  unsigned mode_;
  bool half_line_ = false;       // the last write ended inside a line
  std::int64_t since_look_ = 0;  // lines
  std::chrono::steady_clock::time_point last_look_ = std::chrono::steady_clock::now();
  std::int64_t dropped_ = 0;
  std::int64_t failures_ = 0;
  Status first_failure_;
};

}  // namespace gaccd
