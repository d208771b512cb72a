// Messages being sent: MPI progresses them only during calls. Keeps a copy of each until it is
// sent. Used by one thread.
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
  // Starts sending a copy.
  Status Add(MPI_Comm comm, const ConstBuffer& message, int to);
  // Makes MPI progress; removes sent messages from the front.
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
