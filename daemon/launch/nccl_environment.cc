#include "daemon/launch/nccl_environment.h"

#include "collectives/base/environment.h"
#include "collectives/comm/nccl_settings.h"

namespace gaccd {

void SetNcclEnvironment(const Flags& flags, bool deterministic) {
  const Environment environment = ProcessEnvironment();
  const auto set = [&](const EnvironmentSettings& settings) {
    ApplySettings(MissingSettings(settings, environment));
  };
  set(NcclSettings());
  if (deterministic) set(NcclDeterministicSettings());
  if (flags.allow_gpu_sharing) set(NcclSharingSettings(environment, HostAndProcess()));
}

}  // namespace gaccd
