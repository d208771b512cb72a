#include "daemon/train/nccl_environment.h"

#include "collectives/base/environment.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

bool IsDeterministic(const Flags& flags) {
  auto job = flags.job ? LoadJob(*flags.job) : Result<Job>(Job{});
  // A job that cannot be read or is wrong is reported later, by every verb that needs it.
  if (job.ok()) job = OverlayFlags(*std::move(job), flags);
  return job.ok() && job->deterministic;
}

}  // namespace

void SetNcclEnvironment(const Flags& flags) {
  const Environment environment = ProcessEnvironment();
  const auto set = [&](const EnvironmentSettings& settings) {
    ApplySettings(MissingSettings(settings, environment));
  };
  set(NcclSettings());
  if (IsDeterministic(flags)) set(NcclDeterministicSettings());
  if (flags.allow_gpu_sharing) set(NcclSharingSettings(environment, HostAndProcess()));
}

}  // namespace gaccd
