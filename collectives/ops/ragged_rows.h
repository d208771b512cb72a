// A matrix whose rows are spread over the ranks in rank order: rank r has rows_of(r) of them,
// possibly none; all rows have the same width. A value, cheap to move; not changed after it is
// made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd::collectives {

class RaggedRows {
 public:
  // rows: by rank, none negative. width >= 0. kInternal when they are, or when the product
  // overflows.
  [[nodiscard]] static Result<RaggedRows> Make(std::span<const std::int64_t> rows,
                                               std::int64_t width);

  // Collective: every rank says how many rows it has and learns those of the others. kInternal
  // when the widths differ; the error names a rank and both widths, on every rank.
  [[nodiscard]] static Result<RaggedRows> Exchange(Communicator& comm, std::int64_t my_rows,
                                                   std::int64_t width);

  [[nodiscard]] int ranks() const { return static_cast<int>(elements_.size()); }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t rows_of(int rank) const;
  [[nodiscard]] std::int64_t total_rows() const;

  // Elements by rank (rows times width), and where the part of a rank starts in the whole.
  [[nodiscard]] std::span<const std::int64_t> elements() const { return elements_; }
  [[nodiscard]] std::int64_t elements_of(int rank) const;
  [[nodiscard]] std::int64_t offset_of(int rank) const;
  [[nodiscard]] std::int64_t total_elements() const { return total_; }

 private:
  RaggedRows() = default;

  std::vector<std::int64_t> rows_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> offsets_;
  std::int64_t width_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace gaccd::collectives
