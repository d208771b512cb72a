// LineReader: the lines of a file that may grow or be truncated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Merger: merges the records of several growing sources, the earliest first.

// A Source has
//   bool Advance();                // to its next record; false at the end so far
//   Record& record();              // REQUIRES: Advance() returned true
//   bool IsBefore(const Source&);  // order of their records
// Not thread-safe.
template <typename Source>
class Merger {
 public:
  void Add(std::unique_ptr<Source> source) {
    ended_.push_back(source.get());
    sources_.push_back(std::move(source));
  }
  // Continues ended sources and starts added ones.
  void Refresh() {
    for (Source* const source : std::exchange(ended_, {})) Push(source);
  }
  // The earliest record; null at the end so far, until Refresh().
  [[nodiscard]] auto* First() const { return heap_.empty() ? nullptr : &heap_.front()->record(); }
  // REQUIRES: First() is not null.
  [[nodiscard]] auto Pop() {
    std::ranges::pop_heap(heap_, IsLater);
    Source* const source = heap_.back();
    heap_.pop_back();
    auto record = std::move(source->record());
    Push(source);
    return record;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Source>>& sources() const { return sources_; }

 private:
  static bool IsLater(const Source* a, const Source* b) { return b->IsBefore(*a); }
  void Push(Source* source) {
    if (!source->Advance()) return ended_.push_back(source);
    heap_.push_back(source);
    std::ranges::push_heap(heap_, IsLater);
  }

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<Source*> heap_;   // sources with a record, the earliest first
  std::vector<Source*> ended_;  // the others
};

}  // namespace gaccd
