// Messages that were sent and have not left yet: MPI moves them while it is called. A copy of each
// is kept until then. Used by one thread.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"

namespace gaccd {

class MpiSends {
 public:
  // Starts to send a copy.
  Status Add(MPI_Comm comm, const ConstBuffer& message, int to);
  // Moves them on; those at the front that have left are forgotten.
  Status Move();
  [[nodiscard]] bool empty() const { return under_way_.empty(); }

 private:
  struct UnderWay {
    std::vector<std::byte> copy;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::deque<UnderWay> under_way_;
};

}  // namespace gaccd
