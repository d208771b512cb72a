#include "collectives/ops/ragged_rows.h"

#include <array>
#include <numeric>

#include "collectives/base/strings.h"

namespace gaccd::collectives {

Result<RaggedRows> RaggedRows::Make(std::span<const std::int64_t> rows, std::int64_t width) {
  if (width < 0) {
    return Status(ErrorKind::kInternal,
                  StrCat("ragged rows: expected a width of at least 0, found ", width));
  }
  RaggedRows result;
  result.width_ = width;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::int64_t elements = 0;
    if (rows[r] < 0) {
      return Status(ErrorKind::kInternal, StrCat("ragged rows: rank ", r, " has ", rows[r],
                                                 " rows, expected at least 0"));
    }
    result.offsets_.push_back(result.total_);
    if (__builtin_mul_overflow(rows[r], width, &elements) ||
        __builtin_add_overflow(result.total_, elements, &result.total_)) {
      return Status(ErrorKind::kInternal,
                    StrCat("ragged rows: the number of elements overflows at rank ", r, " with ",
                           rows[r], " rows of ", width));
    }
    result.rows_.push_back(rows[r]);
    result.elements_.push_back(elements);
  }
  return result;
}

Result<RaggedRows> RaggedRows::Exchange(Communicator& comm, std::int64_t my_rows,
                                        std::int64_t width) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const std::array<std::int64_t, 2> mine = {my_rows, width};
  const std::vector<std::int64_t> counts(ranks, 2);
  std::vector<std::int64_t> all(2 * ranks);
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span<const std::int64_t>(mine)), counts, View(std::span(all))));
  std::vector<std::int64_t> rows;
  for (std::size_t r = 0; r < ranks; ++r) {
    rows.push_back(all[2 * r]);
    if (all[2 * r + 1] == all[1]) continue;
    return Status(ErrorKind::kInternal,
                  StrCat("ragged rows: rank ", r, " has rows of ", all[2 * r + 1],
                         " elements where rank 0 has rows of ", all[1]));
  }
  return Make(rows, width);
}

std::int64_t RaggedRows::rows_of(int rank) const { return rows_[static_cast<std::size_t>(rank)]; }

std::int64_t RaggedRows::total_rows() const {
  return std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
}

std::int64_t RaggedRows::elements_of(int rank) const {
  return elements_[static_cast<std::size_t>(rank)];
}

std::int64_t RaggedRows::offset_of(int rank) const {
  return offsets_[static_cast<std::size_t>(rank)];
}

}  // namespace gaccd::collectives
