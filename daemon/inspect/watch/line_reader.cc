#include "daemon/inspect/watch/line_reader.h"

#include <span>

#include "collectives/base/files.h"

namespace gaccd {

LineReader::LineReader(std::string path, std::size_t piece, From from)
    : path_(std::move(path)), piece_(piece) {
  if (from == From::kBegin || !PathExists(path_)) return;
  const auto file = InputFile::Open(path_);
  if (!file.ok() || file->size() <= piece_) return;
  offset_ = file->size() - piece_;
  skips_ = true;
}

std::optional<std::string_view> LineReader::Next() {
  while (true) {
    const std::size_t end = buffer_.find('\n', begin_);
    if (end == std::string::npos) {
      if (!Fill()) return std::nullopt;
      continue;
    }
    const std::size_t begin = std::exchange(begin_, end + 1);
    if (std::exchange(skips_, false)) continue;
    if (end - begin <= kMaxBytes) return std::string_view(buffer_).substr(begin, end - begin);
    ++too_long_;
  }
}

// Reads the next piece; false if there is none.
bool LineReader::Fill() {
  buffer_.erase(0, std::exchange(begin_, 0));
  if (buffer_.size() > kMaxBytes) {
    if (!std::exchange(skips_, true)) ++too_long_;
    buffer_.clear();
  }
  if (!PathExists(path_)) return false;
  const auto file = InputFile::Open(path_);
  status_ = file.status();
  if (!file.ok() || file->size() <= offset_) return false;
  const std::size_t old = buffer_.size();
  buffer_.resize(old + std::min<std::uint64_t>(piece_, file->size() - offset_));
  const auto more = std::span(buffer_).subspan(old);
  status_ = file->ReadAt(offset_, std::as_writable_bytes(more));
  if (!status_.ok()) {
    buffer_.resize(old);
    return false;
  }
  offset_ += more.size();
  return true;
}

}  // namespace gaccd
