// Any bytes as job text: refused with a message, or a job whose text reads back as the same job.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/config/job_text.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzJobText(const std::uint8_t* data, std::size_t size) {
  using gaccd::FuzzCheck;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto job = gaccd::ParseJobText(text, "job.txtpb");
  if (!job.ok()) {
    FuzzCheck(job.status().kind() == gaccd::ErrorKind::kConfig, "the kind of a refusal is config");
    FuzzCheck(job.status().message().starts_with("job.txtpb:"), "a refusal names the file");
    return 0;
  }
  FuzzCheck(!job->name.empty() && !job->model.layer.empty(), "required fields are there");
  FuzzCheck(std::isfinite(job->optimizer.lr) && job->optimizer.lr > 0, "lr is finite, above 0");
  FuzzCheck(job->batch.micro >= 1 && job->batch.target.value_or(1) >= 1, "counts are in range");
  FuzzCheck(job->epochs > 0 || job->max_updates > 0, "the run ends");

  const std::string resolved = gaccd::JobText(*job);
  const auto again = gaccd::ParseJobText(resolved, "resolved");
  FuzzCheck(again.ok(), "the resolved text is a job");
  FuzzCheck(gaccd::JobText(*again) == resolved, "the resolved text reads back the same");
  FuzzCheck(gaccd::OverlayFlags(*job, {}).ok(), "no flags, no objection");
  return 0;
}
