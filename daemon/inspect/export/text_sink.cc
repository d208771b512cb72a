#include "daemon/inspect/export/text_sink.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "collectives/base/output.h"

namespace gaccd {

Result<TextSink> TextSink::Open(const std::string& out, unsigned mode) {
  TextSink sink;
  if (out.empty()) return sink;
  GACCD_ASSIGN_OR_RETURN(sink.path_, OutputTarget(out));
  GACCD_ASSIGN_OR_RETURN(sink.file_, CreateTemporary(sink.path_, mode));
  // Not for the user only: the umask must not make it so.
  const bool shared = mode != kFileMode;
  if (shared && ::fchmod(sink.file_->file.get(), mode) != 0) {
    return ErrnoStatus("cannot make readable for all", sink.path_);
  }
  return sink;
}

TextSink::TextSink(TextSink&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, std::nullopt)),
      text_(std::move(other.text_)) {}

TextSink::~TextSink() {
  if (file_) ::unlink(file_->path.c_str());
}

Status TextSink::Write(std::string_view text) {
  constexpr std::size_t kPiece = std::size_t{256} << 10;
  text_ += text;
  return text_.size() < kPiece ? Status() : Flush();
}

Status TextSink::Flush() {
  const Status status = file_ ? WriteAll(file_->file.get(), text_, path_) : PrintOut(text_);
  text_.clear();
  return status;
}

Status TextSink::Close() {
  GACCD_RETURN_IF_ERROR(Flush());
  if (!file_) return {};
  if (!file_->file.Close()) return ErrnoStatus("cannot write", path_);
  if (std::rename(file_->path.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus("cannot replace", path_);
  }
  file_.reset();
  return {};
}

}  // namespace gaccd
