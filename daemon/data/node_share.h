// What one rank of a node, the leader, does for the others while it opens the data: it unpacks
// compressed files into memory that they map, and checks every value of files that they map
// anyway. The memory has no name in any file system: it is gone with the last process that has it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

struct SharedBytes {
  std::span<std::byte> bytes;   // the others may only read them
  std::shared_ptr<void> owner;  // of the mapping
};

// Used by one thread. The leader keeps it until the others have opened the data.
class NodeShare {
 public:
  // `tick` is called at least every 64 MiB of work, for a rank may work longer than the others
  // would wait; its error ends the opening.
  static NodeShare Leader(TickFunction tick) { return {true, std::move(tick)}; }
  // Of another rank of its node: what the leader's Text() says.
  static NodeShare Follower(std::string_view text, TickFunction tick);
  // Takes every file for checked: for the shapes of data whose values are not used.
  static NodeShare Unchecked();

  // Memory for what is in the file `path`. Nothing on the others, and where the system has none to
  // share: note() says why.
  std::optional<SharedBytes> Reserve(const std::string& path, std::size_t bytes);
  // What was reserved for `path`, if anything, is complete.
  void Publish(const std::string& path);
  // A file has passed the checks of a certain use of it, which names both.
  void MarkChecked(const std::string& use);
  [[nodiscard]] std::string Text() const;
  [[nodiscard]] Status Tick() const { return tick_(); }

  // On the others, and on the leader itself. Nothing: not published, or out of reach.
  std::optional<SharedBytes> Find(const std::string& path);
  [[nodiscard]] bool IsChecked(const std::string& use) const;

  // Why something is not shared, the first time; empty: all is.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  struct Entry {
    std::string path;
    std::string memory;  // "/proc/<pid>/fd/<number>"
    std::string mark;    // which memory that is
    FileDescriptor file;
    std::size_t bytes = 0;
    bool published = true;
  };
  NodeShare(bool leads, TickFunction tick) : leads_(leads), tick_(std::move(tick)) {}
  void Note(std::string_view what, const std::string& path);

  bool leads_;
  bool trusts_ = false;  // Unchecked()
  TickFunction tick_;
  std::vector<Entry> unpacked_;
  std::vector<std::string> checked_;
  std::string note_;
};

}  // namespace gaccd
