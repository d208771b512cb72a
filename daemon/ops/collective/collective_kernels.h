// Kernels of collective.h, shared by CPU and GPU: calls of the communicator, and device-specific
// operations.
#pragma once

#include <functional>

#include "collectives/comm/communicator.h"
#include "daemon/autograd/kernel.h"

namespace gaccd {

// All work is enqueued on `stream`; `copy` does not wait.
struct CollectiveDevice {
  Communicator* comm = nullptr;  // null: none
  MemoryKind memory = MemoryKind::kHost;
  StreamHandle stream;
  std::function<Status(const void* from, std::size_t bytes, void* to)> copy;
};

// Kernels do not change their inputs. kConfig: there is no communicator; kInternal: the function
// was made for other ranks than the communicator's.
KernelResult MakeCollective(const KernelRequest& request, const CollectiveDevice& device);

}  // namespace gaccd
