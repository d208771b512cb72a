#include "daemon/engine/shard_cuda.h"

#include "collectives/base/strings.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/tensor/shard_grid.h"

namespace gaccd {

Result<std::unique_ptr<CudaShards>> CudaShards::Make(Communicator& comm, const FlatLayout& layout,
                                                     const Options& options, DeviceWaiter& waiter) {
  std::unique_ptr<CudaShards> made;
  if (ShardGrid::Of(options.mode, CountRanksByNode(comm.topology())).parts() == 1) return made;
  made.reset(new CudaShards(layout, options, waiter));
  auto exchange =
      ShardExchange::Make(comm, options.mode, layout, options.state_buffers, MemoryKind::kCuda);
  // Sub-communicators can fail on single ranks; the agreement below is collective over all ranks.
  std::int64_t failed = exchange.ok() ? 0 : 1;
  const MutableBuffer counted = View(std::span(&failed, 1));
  const Status agreed = comm.AllReduceSum(counted, counted);
  GACCD_RETURN_IF_ERROR(exchange.status());
  GACCD_RETURN_IF_ERROR(agreed);
  if (failed > 0) {
    return Status(ErrorKind::kUnavailable,
                  StrCat(failed, " other ranks could not divide the optimizer's state"));
  }
  made->exchange_ = *std::move(exchange);
  return made;
}

std::int64_t CudaShards::bytes() const {
  return options_.state_buffers == 0
             ? 0
             : exchange_->piece_elements() * static_cast<std::int64_t>(sizeof(float));
}

Status CudaShards::Allocate(cudaStream_t compute) {
  compute_ = compute;
  GACCD_ASSIGN_OR_RETURN(
      piece_, DeviceBuffer::Allocate(static_cast<std::size_t>(bytes()), "a piece of the state"));
  return Status::Ok();
}

Status CudaShards::BeforeCollective(std::string_view what) {
  return options_.overlap ? Status::Ok() : waiter_.WaitForStream(compute_, what);
}

Status CudaShards::Gather(float* whole) {
  GACCD_RETURN_IF_ERROR(BeforeCollective("work before parts are gathered"));
  return exchange_->Gather(Whole(whole), {compute_});
}

Status CudaShards::GatherSquares(const float* gradients, const UpdateControl* control,
                                 void* scratch) {
  const std::span<double> squares = {SquaresIn(scratch),
                                     static_cast<std::size_t>(exchange_->blocks())};
  GACCD_RETURN_IF_ERROR(BlockSquares(compute_, gradients + own().first, own().elements, control,
                                     exchange_->OwnSquares(squares).data()));
  GACCD_RETURN_IF_ERROR(BeforeCollective("squares of the own part"));
  return exchange_->GatherSquares(squares, {compute_});
}

Status CudaShards::CopyStateOut(std::string_view what, const float* own, std::int64_t first,
                                std::span<float> to) {
  GACCD_RETURN_IF_ERROR(BeforeCollective(what));
  const auto copy = [&](std::span<const float> from, std::span<float> out) -> Status {
    // A copy to pageable memory blocks in the driver, so wait by polling first.
    GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(compute_, what));
    return CudaStatus(cudaMemcpyAsync(out.data(), from.data(), out.size_bytes(),
                                      cudaMemcpyDeviceToHost, compute_),
                      what);
  };
  GACCD_RETURN_IF_ERROR(exchange_->GatherState(
      {own, state_elements()}, first, to,
      {piece_.as<float>(), static_cast<std::size_t>(exchange_->piece_elements())}, copy,
      {compute_}));
  return waiter_.WaitForStream(compute_, what);
}

Status CudaShards::ExchangeOnce(float* gradients, cudaStream_t stream) {
  GACCD_RETURN_IF_ERROR(exchange_->Reduce(Whole(gradients), 0, size_, {stream}));
  GACCD_RETURN_IF_ERROR(exchange_->Gather(Whole(gradients), {stream}));
  return waiter_.WaitForStream(stream, "first exchange of parts");
}

}  // namespace gaccd
