// RowFile: a NumPy array of known shape, which all ranks fill: each writes its rows where they
// belong, in a temporary file next to the one that is wanted. Used by one thread of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "collectives/base/dtype.h"
#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

struct RowFileOptions {
  std::string path;           // that the user named
  Shape shape;                // [rows, ...]
  DType dtype = DType::kF32;  // or kI32
  unsigned mode = kFileMode;  // before the umask
};

class RowFile {
 public:
  RowFile() = default;
  // Without Publish() nothing of it remains.
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Rank 0 makes the temporary file, with room on the disk for all of it, and the others open it:
  // kIo where one of them does not see it. Collective.
  Agreement Open(Communicator& comm, const RowFileOptions& options);

  // bytes: of whole rows, from row `first` on.
  Status Write(std::int64_t first, std::span<const std::byte> bytes);
  // What this rank wrote is on the disk.
  Status Finish();

  // On rank 0, after Finish() of all ranks: the file gets its name.
  Status Publish();
  // Or its rows are read once more, in order, some at a time; then it is removed. In their place
  // is the file that `take` writes.
  using TakeRows = std::function<Status(std::int64_t first, std::span<const std::byte> bytes)>;
  Status ReadBack(const TakeRows& take) const;

 private:
  Status Create();
  Status OpenOfOther();

  RowFileOptions options_;
  std::string target_;  // on rank 0: options_.path, links followed
  std::string temporary_;
  std::string header_;
  std::int64_t row_bytes_ = 0;
  FileDescriptor file_;
  bool owner_ = false;  // rank 0: removes it
};

}  // namespace gaccd
