#include "daemon/launch/session.h"

#include <chrono>
#include <utility>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/help.h"
#include "daemon/config/job_checks.h"
#include "daemon/config/job_text.h"
#include "daemon/launch/device_choice.h"
#include "daemon/launch/gpu_libraries.h"

namespace gaccd {

Result<Session> Session::Join(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(Ranks ranks, JoinRanks(flags, ProcessEnvironment()));
  Session session{.ranks = std::move(ranks)};
  GACCD_ASSIGN_OR_RETURN(session.peers,
                         PeerWatch::Start(session.comm, session.ranks.interrupt,
                                          std::chrono::seconds(flags.heartbeat_seconds)));
  return session;
}

Status Session::CheckAllTheSame(const Flags& flags, const Job& job) {
  GACCD_RETURN_IF_ERROR(CheckSameOnAllRanks(comm, "binary", BuildId()));
  return CheckSameOnAllRanks(comm, "flags", JobDigest(job, flags));
}

Status Session::SelectDevice(const Flags& flags, const Job& job) {
  const GpuProbe probe = job.device == Device::kCpu ? GpuProbe() : ProbeGpus(comm.size());
  GACCD_ASSIGN_OR_RETURN(device, ChooseDevice(comm, job.device, flags.allow_gpu_sharing, probe));
  if (device.device == Device::kCpu) {
    GACCD_RETURN_IF_ERROR(CheckCpuNumerics(GetNumerics(job), device.text));
    if (job.precision != Precision::kBF16) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(bf16, CheckBf16OnCpus(comm, DetectCpuBf16(), flags.allow_emulation));
    return Status::Ok();
  }
  GACCD_RETURN_IF_ERROR(CheckModelOnGpu(job));
  GACCD_ASSIGN_OR_RETURN(const DnnWork work, FindDnnWork(job));
  if (work.attention || work.convolution) {
    GACCD_ASSIGN_OR_RETURN(dnn, ChooseDnn(comm, work, job.precision, FindDnnLibrary()));
  }
  if (comm.size() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(between_gpus,
                         MakeNccl(comm, {.comm = {.bound = std::chrono::seconds(flags.bound)},
                                         .device = device.gpu->device,
                                         .gpu_sharing = flags.allow_gpu_sharing,
                                         .windows = NcclWindowsWanted(ProcessEnvironment())}));
  return Status::Ok();
}

EngineChoice Session::MakeEngineChoice(const Flags& flags) const {
  EngineChoice choice{.device = device.device};
  if (device.gpu) {
    choice.gpu = device.gpu->device;
    choice.gpu_sharing = flags.allow_gpu_sharing;
    choice.dnn = dnn.library;
    choice.reduction_multiprocessors = NcclMaxCtas(ProcessEnvironment());
  }
  return choice;
}

}  // namespace gaccd
