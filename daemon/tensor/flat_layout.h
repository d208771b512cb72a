// FlatLayout: the fixed order of all parameters in flat buffers. Parameters, gradients and
// optimiser state use the same order, so element i of one belongs to element i of the others.
//
// Every parameter starts at a multiple of 16 elements (one cache line of f32). The elements in
// between are padding: they start as zero, their gradients are zero, so they stay zero.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd {

// Settings of the optimiser for a group of parameters that differ from its own.
struct OptimizerGroup {
  std::optional<double> weight_decay;  // empty: that of the optimiser
  double lr_factor = 1;                // factor on the learning rate of the update

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};
inline constexpr OptimizerGroup kNoDecay{.weight_decay = 0.0};

// "decay" (that of the optimiser), "no_decay" or "weight_decay 0.1"; then ", lr_factor 0.5", unless
// it is 1.
[[nodiscard]] std::string GroupText(const OptimizerGroup& group);

// Name prefix of the constants of a network. A constant is a frozen parameter in all computations,
// but is not stored in weight files, as the network defines its value.
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
  // value is constant: no gradient (its place in the gradient buffer is 0), no optimiser state
  bool frozen = false;
  // Frozen for the optimiser, but changed by its layer once per update, for example the running
  // mean of a batch norm. Until the update is measured, its place in the gradients may hold the
  // layer's contribution (nn::Recorder::AddToBuffers). Not counted as a parameter, but saved with
  // the weights.
  bool buffer = false;

  [[nodiscard]] std::int64_t padded_elements() const;
};

class FlatLayout {
 public:
  static constexpr std::int64_t kAlignment = 16;  // elements
  // Reductions over a whole buffer and cuts of it use blocks of this many elements (the last block
  // may be shorter), so that they do not depend on the number of ranks.
  static constexpr std::int64_t kBlock = 1024;

  // Appends a parameter and returns its index. kConfig if the name exists or the shape is invalid.
  Result<std::size_t> Add(std::string name, Shape shape, const OptimizerGroup& group = {},
                          bool frozen = false);
  // Marks the entry as a buffer.
  void SetBuffer(std::size_t index);
  // REQUIRES: index < entries().size(), not a buffer.
  void SetGroup(std::size_t index, const OptimizerGroup& group, bool frozen);

  // The same entries at other offsets of a buffer of `size` elements. REQUIRES: one offset per
  // entry.
  [[nodiscard]] FlatLayout PlacedAt(std::span<const std::int64_t> offsets, std::int64_t size) const;

  [[nodiscard]] std::span<const FlatEntry> entries() const { return entries_; }
  [[nodiscard]] std::int64_t size() const { return size_; }  // elements, including padding
  // Elements that are not frozen, including padding: those with optimiser state.
  [[nodiscard]] std::int64_t trainable_size() const;
  // Elements without padding and buffers: the number of parameters as usually reported.
  [[nodiscard]] std::int64_t parameters() const;
  [[nodiscard]] const FlatEntry* Find(std::string_view name) const;  // null if there is none

 private:
  std::vector<FlatEntry> entries_;
  std::int64_t size_ = 0;
};

}  // namespace gaccd
