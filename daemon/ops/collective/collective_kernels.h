// Kernels of collective.h, shared by CPU and GPU: calls of the communicator, and device-specific
// operations.
#pragma once

#include <functional>

#include "collectives/comm/communicator.h"
#include "daemon/autograd/kernel.h"

namespace gaccd {

// All work is enqueued on `stream`; the functions do not wait.
struct CollectiveDevice {
  Communicator* comm = nullptr;  // null: none
  MemoryKind memory = MemoryKind::kHost;
  StreamHandle stream;
  // null: every output begins where its input does
  std::function<Status(const void* from, std::size_t bytes, void* to)> copy;
  std::function<Status(void* to, std::size_t bytes)> clear;
  // out[i] = in[i] / count, rounded once: a count above 2^24 has no exact float. out may alias in.
  std::function<Status(const float* in, std::int64_t elements, std::int64_t count, float* out)>
      divide;
};

// Kernels do not change their inputs. kConfig: there is no communicator; kInternal: the function
// was made for other ranks than the communicator's.
KernelResult MakeCollective(const KernelRequest& request, const CollectiveDevice& device);

}  // namespace gaccd
