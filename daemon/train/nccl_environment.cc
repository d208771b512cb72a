#include "daemon/train/nccl_environment.h"

#include "collectives/base/environment.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

bool IsDeterministic(const Flags& flags) {
  if (flags.deterministic || !flags.job) return flags.deterministic.value_or(false);
  const auto job = LoadJob(*flags.job);
  return job.ok() && job->numerics.deterministic;
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
