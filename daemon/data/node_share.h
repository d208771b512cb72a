// Shares the work of opening data within a node: one rank, the leader, unpacks compressed files
// into memory that the other ranks map, and checks every value of files that all of them map. The
// memory is a memfd and is freed with the last process that maps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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
  std::span<std::byte> bytes;   // read-only on followers
  std::shared_ptr<void> owner;  // owns the mapping
};

// Used by one thread. The leader must keep it until the other ranks have opened the data.
class NodeShare {
 public:
  // `tick` is called at least every 64 MiB of work, so that the other ranks do not time out; its
  // error ends the opening.
  static NodeShare Leader(TickFunction tick) { return {true, std::move(tick)}; }
  // On another rank of the node. text: Text() of the leader.
  static NodeShare Follower(std::string_view text, TickFunction tick);
  // Considers every file checked: to read shapes of data whose values are not used.
  static NodeShare Unchecked();

  // Shared memory for the unpacked file `path`. nullopt on followers, and if the system provides
  // none: note() has the reason.
  std::optional<SharedBytes> Reserve(const std::string& path, std::size_t bytes);
  // Marks the memory reserved for `path`, if any, as complete.
  void Publish(const std::string& path);
  // Records that a file passed the checks for a use, and a number that they found. `use` identifies
  // both.
  void MarkChecked(const std::string& use, std::int64_t found = 0);
  [[nodiscard]] std::string Text() const;
  [[nodiscard]] Status Tick() const { return tick_(); }

  // On any rank. nullopt: not published, or not accessible.
  std::optional<SharedBytes> Find(const std::string& path);
  [[nodiscard]] bool IsChecked(const std::string& use) const;
  // The number given to MarkChecked(); 0 if it is not known.
  [[nodiscard]] std::int64_t Found(const std::string& use) const;

  // The first reason why something is not shared; empty: all is shared.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  struct Entry {
    std::string path;
    std::string memory;    // "/proc/<pid>/fd/<number>"
    std::string identity;  // identifies the memory: device and inode
    FileDescriptor file;
    std::size_t bytes = 0;
    bool published = true;
  };
  NodeShare(bool is_leader, TickFunction tick) : is_leader_(is_leader), tick_(std::move(tick)) {}
  void Note(std::string_view what, const std::string& path);

  bool is_leader_;
  bool unchecked_ = false;  // Unchecked()
  TickFunction tick_;
  std::vector<Entry> unpacked_;
  std::map<std::string, std::int64_t> checked_;  // what was found, by use
  std::string note_;
};

}  // namespace gaccd
