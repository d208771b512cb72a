// The kernels of collective.h, once for CPU and GPU: calls of the communicator, and what a device
// does in addition to them.
#pragma once

#include <functional>

#include "collectives/comm/communicator.h"
#include "daemon/autograd/kernel.h"

namespace gaccd {

// `stream` is that of all work; the functions enqueue there and do not wait.
struct CollectiveDevice {
  Communicator* comm = nullptr;  // null: there is none
  MemoryKind memory = MemoryKind::kHost;
  StreamHandle stream;
  std::function<Status(const void* from, std::size_t bytes, void* to)> copy;
  std::function<Status(void* to, std::size_t bytes)> clear;
  // out[i] = in[i] / count, rounded once: a count above 2^24 has no exact float. out may be in.
  std::function<Status(const float* in, std::int64_t elements, std::int64_t count, float* out)>
      divide;
};

// Kernels leave their inputs as they are. kConfig: there is no communicator; kInternal: the
// function is for other ranks than the communicator's.
KernelResult MakeCollective(const KernelRequest& request, const CollectiveDevice& device);

}  // namespace gaccd
