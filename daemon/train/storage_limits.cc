#include "daemon/train/storage_limits.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "daemon/launch/session.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

using Millis = std::chrono::milliseconds;
// A slow disk must not be treated as hanging.
constexpr Millis kMin{2'000};

}  // namespace

Millis SaveLimit(Millis bound, double bytes) {
  constexpr double kSlowBytesPerMs = 50e3;
  const Millis slow(static_cast<std::int64_t>(bytes / kSlowBytesPerMs));
  return std::max({bound / 2, slow, kMin});
}

Millis VerdictLimit(Millis bound) {
  constexpr Millis kMax{10'000};
  return std::clamp(bound / 4, kMin, kMax);
}

Status WriteWithin(Millis limit, const std::string& path, const TickFunction& tick,
                   std::function<Status()> write) {
  const auto result = std::make_shared<Status>();
  const bool written = CallWithin(
      limit,
      [result, path, write = std::move(write)] {
        try {
          *result = write();
        } catch (const std::bad_alloc&) {  // an uncaught exception would end the process
          *result = NoMemory(StrCat("'", path, "'"), 0);
        }
      },
      [&] {
        if (tick) (void)tick();
      });
  if (written) return *result;
  return {ErrorKind::kTempFail,
          StrCat("the training is complete, but the file system of '", path,
                 "' does not answer: not written within ", limit.count(), " ms")};
}

void AddStorageProblem(const Status& problem, RankStatus& rank_status) {
  if (problem.ok()) return;
  if (rank_status.status.ok()) {
    LogWarning(problem.message());
    return;
  }
  rank_status.status = {rank_status.status.kind(),
                        StrCat(rank_status.status.message(), "; ", problem.message())};
}

}  // namespace gaccd
