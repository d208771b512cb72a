#include "collectives/bootstrap/work_together.h"

#include <cstdint>
#include <span>
#include <utility>

namespace gaccd {
namespace {

// Collective: number of ranks that are still working.
Result<std::int64_t> CountWorkers(Communicator& comm, bool works) {
  std::int64_t workers = works ? 1 : 0;
  const std::span<std::int64_t> one(&workers, 1);
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span<const std::int64_t>(one)), View(one)));
  return workers;
}

}  // namespace

Agreement WorkTogether(Communicator& comm,
                       const std::function<Status(const TickFunction& tick)>& work) {
  // the error of the other ranks, which is more informative than the one `work` returns for it
  Status lost;
  Status status = work([&] {
    if (lost.ok()) lost = CountWorkers(comm, true).status();
    return lost;
  });
  if (!lost.ok()) return {std::move(lost), comm.rank()};
  for (bool all_done = false; !all_done;) {
    const auto workers = CountWorkers(comm, false);
    if (!workers.ok()) return {status.ok() ? workers.status() : std::move(status), comm.rank()};
    all_done = *workers == 0;
  }
  return AgreeOn(comm, status);
}

}  // namespace gaccd
