// ShardExchange: what the ranks exchange where each keeps the optimiser's state of its own part
// alone (daemon/tensor/shard_layout.h). Host memory; used by one thread. What returns a Status is
// collective. A "whole" buffer has the elements of the layout; a whole state has those of
// StateElements(), this rank's own one those of its part, buffer after buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

class ShardExchange {
 public:
  // state_buffers: values of state for each trainable element. `comm` outlives this.
  ShardExchange(Communicator& comm, const FlatLayout& layout, std::int64_t state_buffers);

  [[nodiscard]] const ShardPart& own() const {
    return shards_.parts()[static_cast<std::size_t>(comm_->rank())];
  }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const {
    return whole.subspan(static_cast<std::size_t>(own().first),
                         static_cast<std::size_t>(own().elements));
  }

  // The own part becomes the sum over the ranks; the others have no meaning any more. As many bytes
  // as half of an all-reduce.
  Status Reduce(std::span<float> whole);
  // The other half: all parts become what their owners have.
  Status Gather(std::span<float> whole);
  // SumOfSquares() of all parts, with the bits that it has for a whole buffer.
  Result<double> SumOfSquares(std::span<const float> own_part);

  void KeepOwn(std::span<const float> whole_state, std::span<float> own_state) const;
  // Elements [first, first + out.size()) of the whole state, which every rank chooses for itself.
  Status GatherState(std::span<const float> own_state, std::int64_t first,
                     std::span<float> out) const;

 private:
  Communicator* comm_;
  ShardLayout shards_;
  std::int64_t state_buffers_;
  std::vector<double> own_squares_;  // by block
  std::vector<double> squares_;      // of all ranks
};

}  // namespace gaccd
