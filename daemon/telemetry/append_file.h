// AppendFile: appends lines to a file, normally with one write(2) each. A line that cannot be
// written is dropped and counted; after a partial line the next one starts on a new line. Every
// kCheckPeriod it checks whether the file still exists: a removed file is created again, and the
// lines since the last check count as dropped. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

class AppendFile {
 public:
  // `file` is open for appending at `path`; mode: for creating the file again.
  AppendFile(FileDescriptor file, std::string path, unsigned mode = kFileMode)
      : file_(std::move(file)), path_(std::move(path)), mode_(mode) {}

  static constexpr std::chrono::seconds kCheckPeriod{10};

  enum class Counted : std::uint8_t { kYes, kNo };

  // Appends a line; adds a line break if it has none. Returns false if the line is lost; `counted`
  // says whether it then counts as dropped.
  bool Append(std::string line, Counted counted = Counted::kYes);
  void ReopenIfRemoved();
  // Waits until everything is on disk.
  void Sync();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }
  // Number of failed calls, and the first error.
  [[nodiscard]] std::int64_t failures() const { return failures_; }
  [[nodiscard]] const Status& first_failure() const { return first_failure_; }

 private:
  void Fail(Status status);

  FileDescriptor file_;
  std::string path_;
  unsigned mode_;
  bool partial_line_ = false;     // the last write ended inside a line
  std::int64_t since_check_ = 0;  // lines since the last check
  std::chrono::steady_clock::time_point last_check_ = std::chrono::steady_clock::now();
  std::int64_t dropped_ = 0;
  std::int64_t failures_ = 0;
  Status first_failure_;
};

}  // namespace gaccd
