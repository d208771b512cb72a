// FlatLayout: the one fixed order of all parameters in flat buffers. Parameters, their gradients
// and the optimiser state all use it, so element i of one belongs to element i of the others.
//
// Every parameter starts at a multiple of 16 elements (one cache line of f32). The elements between
// are padding: they start as zero, their gradients are zero, and so they stay zero.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd {

// What the optimiser does otherwise with a parameter than its own settings say.
struct OptimizerGroup {
  std::optional<double> weight_decay;  // empty: the optimiser's own
  double lr_factor = 1;                // of the learning rate of the update

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};
inline constexpr OptimizerGroup kNoDecay{.weight_decay = 0.0};

// "decay" (the optimiser's own), "no_decay" or "weight_decay 0.1"; then ", lr_factor 0.5",
// unless 1.
[[nodiscard]] std::string GroupText(const OptimizerGroup& group);

// The name of a constant of a network, which is a frozen parameter to all that computes, and in no
// file of weights: the network itself knows its values.
inline constexpr std::string_view kConstantPrefix = "constant:";
[[nodiscard]] inline bool IsConstant(std::string_view name) {
  return name.starts_with(kConstantPrefix);
}

struct FlatEntry {
  std::string name;
  Shape shape;
  std::int64_t offset = 0;    // elements from the start of the buffer
  std::int64_t elements = 0;  // without padding
  OptimizerGroup group;
  bool frozen = false;  // keeps its value: no gradient (its place in the buffer is 0), no state
  // Frozen for the optimiser; its layer changes it once an update, as the running mean of a batch
  // norm; until the update is measured, its place in the gradients may hold what the layer adds up
  // for that (nn::Recorder::AddToBuffers). No parameter to people, but kept with them.
  bool buffer = false;

  [[nodiscard]] std::int64_t padded_elements() const;
};

class FlatLayout {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements
  // What is summed or cut over a whole buffer goes by blocks of so many elements, the last of which
  // may be shorter, so that it does not depend on the number of ranks.
  static constexpr std::int64_t kBlock = 1024;

  // Appends a parameter and returns its index. kConfig when the name is taken or the shape is bad.
  Result<std::size_t> Add(std::string name, Shape shape, const OptimizerGroup& group = {},
                          bool frozen = false);
  // The entry is a buffer.
  void SetBuffer(std::size_t index);
  // REQUIRES: index < entries().size(), no buffer.
  void SetGroup(std::size_t index, const OptimizerGroup& group, bool frozen);

  // The same entries at other places, of a buffer of `size` elements. REQUIRES: an offset for each.
  [[nodiscard]] FlatLayout PlacedAt(std::span<const std::int64_t> offsets, std::int64_t size) const;

  [[nodiscard]] std::span<const FlatEntry> entries() const { return entries_; }
  [[nodiscard]] std::int64_t size() const { return size_; }  // elements, with padding
  // Elements that are not frozen, with padding: what the optimiser keeps state for.
  [[nodiscard]] std::int64_t trainable_size() const;
  // Elements without padding and buffers: what people call the number of parameters.
  [[nodiscard]] std::int64_t parameters() const;
  [[nodiscard]] const FlatEntry* Find(std::string_view name) const;  // null if there is none

 private:
  std::vector<FlatEntry> entries_;
  std::int64_t size_ = 0;
};

}  // namespace gaccd
