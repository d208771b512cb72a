// Output of verbs: standard output, and files named by users.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"

namespace gaccd {

// Standard output of verbs.

// kIo if not everything could be written, so that a full disk or a closed pipe does not look like
// success. The message is empty if the reader has closed the pipe (`gaccd plan | head -1`).
// REQUIRES: SIGPIPE is ignored.
Status PrintOut(std::string_view text);
// What some file systems report only when a file is closed: NFS a full disk or quota. Call it at
// the end; standard output stays open.
Status CheckPrinted();

// Output files named by users, for example by --out=FILE. Thread-safe.

// Resolves `path` for writing: symbolic links are followed, also to a file that does not exist yet,
// so that the link is kept. kIo, with `path` as given, for:
//   a folder, FIFO, socket, device or open file of a process (/dev/stdout)
//   a link created by a user other than this one or root
//   a file that this user may not write
Result<std::string> OutputTarget(const std::string& path);

// OutputTarget(), and checks that a file can be created in its folder by creating and removing one.
// Call it before a long computation.
Status CheckOutputFile(const std::string& path);

// Ok if no file is at `path`, or an empty one, or one with `mark` at `offset`, as an earlier output
// has. kIo for any other file, such as a job text: it may be the only copy. what: "a report".
Status CheckReplaces(const std::string& path, std::string_view mark, std::string_view what,
                     std::size_t offset = 0);

// TextSink: output of a verb, to standard output or atomically to a file. Buffered. Not
// thread-safe. Without Close() no file is created or replaced.
class TextSink {
 public:
  // out: a file, see OutputTarget(), or empty for standard output. mode: of the file. kIo.
  static Result<TextSink> Open(const std::string& out, unsigned mode = kFileMode);
  TextSink(TextSink&& other) noexcept;
  ~TextSink();

  Status Write(std::string_view text);
  // Renames the temporary file to its final name.
  Status Close();

 private:
  TextSink() = default;
  Status Flush();

  std::string path_;  // empty: standard output
  std::optional<TemporaryFile> file_;
  std::string text_;
};

}  // namespace gaccd
