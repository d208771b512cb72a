// What a rank reports about the oldest save to all others, in one exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "collectives/base/sha256.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/writer.h"

namespace gaccd {

enum class SaveStage : std::int64_t { kBusy, kDone, kFailed };
struct SaveReport {
  SaveStage stage = SaveStage::kBusy;
  std::int64_t bytes = 0;
  std::int64_t window_samples = 0;
  double window_loss = 0;
  double window_divisor = 0;
  Sha256Digest sha256{};
  std::int64_t step = 0;
  double took_s = 0;  // for what is done
  GiveUp gives_up = GiveUp::kNo;
  std::int64_t stuck = 0;  // of rank 0: training need not wait for it
};
inline constexpr std::size_t kReportWords = sizeof(SaveReport) / sizeof(std::int64_t);
static_assert(sizeof(SaveReport) == 104 && std::is_trivially_copyable_v<SaveReport>);

[[nodiscard]] inline Status CheckSameStep(std::span<const SaveReport> reports, std::int64_t step) {
  for (const SaveReport& report : reports) {
    if (report.step == step) continue;
    return {ErrorKind::kInternal,
            StrCat("checkpoints: expected all ranks to save step ", step, ", found ", report.step)};
  }
  return Status::Ok();
}

}  // namespace gaccd
