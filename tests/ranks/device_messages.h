// What messages in device memory must do, over any communicator of GPUs.
#pragma once

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd::tests {

// Collective. Every rank sends messages of several sizes and types to both of its neighbours, over
// ChainLinks, all of a direction before it asks for any, and checks what it receives, and that
// nothing was written behind it. largest: elements. kInternal: something was wrong on this rank.
// REQUIRES: comm.memory() is kCuda.
[[nodiscard]] Status CheckDeviceMessages(Communicator& comm, std::size_t largest);

}  // namespace gaccd::tests
