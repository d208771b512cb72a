// RowFile: a NumPy array of known shape, filled by all ranks: each writes its rows at their offsets
// in a temporary file next to the target. Used by one thread per rank.
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
  std::string path;           // as given by the user
  Shape shape;                // [rows, ...]
  DType dtype = DType::kF32;  // or kI32
  unsigned mode = kFileMode;  // before the umask
};

class RowFile {
 public:
  RowFile() = default;
  // Without Publish() the file is removed.
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Rank 0 creates the temporary file and reserves its disk space where the file system can, and
  // the others open it: kIo if one of them cannot see it. Collective.
  Agreement Open(Communicator& comm, const RowFileOptions& options);

  // bytes: whole rows, from row `first` on. Syncs every kSyncBytes, so that Finish() is short.
  Status Write(std::int64_t first, std::span<const std::byte> bytes);
  // Syncs what this rank wrote.
  Status Finish();

  // On rank 0, after Finish() of all ranks: renames the file.
  Status Publish();
  // Instead of Publish(), on rank 0: passes all rows to `consume`, in order, several at a time. The
  // destructor then removes the file.
  using RowConsumer = std::function<Status(std::int64_t first, std::span<const std::byte> bytes)>;
  Status ReadBack(const RowConsumer& consume) const;

 private:
  Status Create();
  Status OpenExisting();
  Status Sync();

  static constexpr std::int64_t kSyncBytes = std::int64_t{64} << 20;

  RowFileOptions options_;
  std::string target_;  // on rank 0: options_.path with links resolved
  std::string temporary_;
  std::string header_;
  std::int64_t row_bytes_ = 0;
  FileDescriptor file_;
  std::int64_t unsynced_ = 0;  // bytes written since the last Sync()
  bool owner_ = false;         // on rank 0: removes the file
};

}  // namespace gaccd
