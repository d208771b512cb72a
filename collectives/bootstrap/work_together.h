// Work that takes longer on some ranks than on others, or than a communicator waits.
#pragma once

#include <functional>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective: AgreeOn() what `work` gives. It calls `tick` every now and then, well within the
// bound of `comm`, and makes no other call of `comm`: a rank that works for long does not let the
// others run into the bound, one that hangs does.
Agreement WorkTogether(Communicator& comm,
                       const std::function<Status(const TickFunction& tick)>& work);

}  // namespace gaccd
