#include "daemon/infer/row_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// NPY version 1.0 (described in daemon/data/formats/array.h), padded to a multiple of 64 bytes.
std::string NpyHeader(const Shape& shape, DType dtype) {
  constexpr std::size_t kPrefixBytes = 10;
  std::string text = StrCat("{'descr': '", dtype == DType::kF32 ? "<f4" : "<i4",
                            "', 'fortran_order': False, 'shape': (");
  for (const std::int64_t size : shape) text += StrCat(size, ", ");
  text += "), }";
  while ((kPrefixBytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() % 256);
  header += static_cast<char>(text.size() / 256);
  return header + text;
}

Status WriteAt(int fd, std::span<const std::byte> bytes, std::int64_t offset,
               const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("cannot write", path);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  return Status::Ok();
}

}  // namespace

RowFile::~RowFile() {
  if (owner_) ::unlink(temporary_.c_str());
}

Agreement RowFile::Open(Communicator& comm, const RowFileOptions& options) {
  options_ = options;
  header_ = NpyHeader(options.shape, options.dtype);
  row_bytes_ = static_cast<std::int64_t>(SizeOf(options.dtype));
  for (const std::int64_t size : std::span(options.shape).subspan(1)) row_bytes_ *= size;
  Agreement made = AgreeOn(comm, comm.rank() == 0 ? Create() : Status::Ok());
  if (!made.status.ok()) return made;
  const auto names = GatherText(comm, temporary_);
  if (!names.ok()) return {names.status(), comm.rank()};
  if (comm.rank() == 0) return AgreeOn(comm, Status::Ok());
  temporary_ = names->front();
  return AgreeOn(comm, OpenExisting());
}

Status RowFile::Create() {
  GACCD_ASSIGN_OR_RETURN(target_, OutputTarget(options_.path));
  GACCD_ASSIGN_OR_RETURN(TemporaryFile made, CreateTemporary(target_, options_.mode));
  temporary_ = std::move(made.path);
  file_ = std::move(made.file);
  owner_ = true;
  const std::int64_t bytes = std::ssize(header_) + options_.shape[0] * row_bytes_;
  // posix_fallocate() would write to every block on a file system that reserves no space.
  const bool reserved = ::fallocate(file_.get(), 0, 0, bytes) == 0 ||
                        (errno == EOPNOTSUPP && ::ftruncate(file_.get(), bytes) == 0);
  if (!reserved) return ErrnoStatus(StrCat("no space for ", bytes, " bytes of"), options_.path);
  return WriteAt(file_.get(), std::as_bytes(std::span(header_)), 0, options_.path);
}

Status RowFile::OpenExisting() {
  GACCD_ASSIGN_OR_RETURN(file_, OpenFile(temporary_, O_WRONLY));
  return Status::Ok();
}

Status RowFile::Write(std::int64_t first, std::span<const std::byte> bytes) {
  GACCD_RETURN_IF_ERROR(
      WriteAt(file_.get(), bytes, std::ssize(header_) + first * row_bytes_, options_.path));
  unsynced_ += std::ssize(bytes);
  return unsynced_ < kSyncBytes ? Status::Ok() : Sync();
}

Status RowFile::Sync() {
  unsynced_ = 0;
  return ::fsync(file_.get()) == 0 ? Status::Ok()
                                   : ErrnoStatus("cannot make durable", options_.path);
}

Status RowFile::Finish() {
  GACCD_RETURN_IF_ERROR(Sync());
  if (!file_.Close()) return ErrnoStatus("cannot close", options_.path);
  return Status::Ok();
}

Status RowFile::Publish() {
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return ErrnoStatus("cannot replace", options_.path);
  }
  owner_ = false;
  return SyncFolder(ParentFolder(target_));
}

Status RowFile::ReadBack(const RowConsumer& consume) const {
  constexpr std::int64_t kPieceBytes = 1 << 20;
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(temporary_));
  const std::int64_t rows = options_.shape[0];
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / row_bytes_);
  std::vector<std::byte> bytes;
  for (std::int64_t first = 0; first < rows; first += piece) {
    bytes.resize(static_cast<std::size_t>(std::min(piece, rows - first) * row_bytes_));
    GACCD_RETURN_IF_ERROR(
        file.ReadAt(static_cast<std::uint64_t>(std::ssize(header_) + first * row_bytes_), bytes));
    GACCD_RETURN_IF_ERROR(consume(first, bytes));
  }
  return Status::Ok();
}

}  // namespace gaccd
