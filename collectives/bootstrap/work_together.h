// Work whose duration differs between ranks or exceeds the time limit of a communicator.
#pragma once

#include <functional>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective: AgreeOn() the result of `work`. `work` must call `tick` regularly, well within the
// bound of `comm`, and make no other call of `comm`. A rank that works for a long time does not
// make the others time out; a rank that hangs does.
Agreement WorkTogether(Communicator& comm,
                       const std::function<Status(const TickFunction& tick)>& work);

}  // namespace gaccd
