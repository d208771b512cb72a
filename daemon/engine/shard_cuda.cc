#include "daemon/engine/shard_cuda.h"

#include "collectives/bootstrap/agree.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

Result<std::unique_ptr<CudaShards>> CudaShards::Make(Communicator& comm, const FlatLayout& layout,
                                                     const Options& options, DeviceWaiter& waiter) {
  std::unique_ptr<CudaShards> made;
  if (ShardGrid::Make(options.mode, CountRanksByNode(comm.topology())).parts() == 1) return made;
  made.reset(new CudaShards(layout, options, waiter));
  auto exchange =
      ShardExchange::Make(comm, options.mode, layout, options.state_buffers, MemoryKind::kCuda);
  // Sub-communicators can fail on single ranks; the agreement is collective over all ranks.
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, exchange.status()).status);
  made->exchange_ = *std::move(exchange);
  return made;
}

std::int64_t CudaShards::bytes() const {
  return options_.state_buffers == 0
             ? 0
             : exchange_->piece_elements() * static_cast<std::int64_t>(sizeof(float));
}

Status CudaShards::Allocate(cudaStream_t compute, UpdateGraph& graph, const Memory& memory) {
  compute_ = compute;
  graph_ = &graph;
  memory_ = memory;
  GACCD_ASSIGN_OR_RETURN(
      piece_, DeviceBuffer::Allocate(static_cast<std::size_t>(bytes()), "a piece of the state"));
  std::size_t begin = graph.size();
  GACCD_RETURN_IF_ERROR(exchange_->RecordGather(graph, Whole(memory.parameters), {compute}));
  parameters_ = graph.Since(begin);
  begin = graph.size();
  GACCD_RETURN_IF_ERROR(exchange_->RecordGather(graph, Whole(memory.gradients), {compute}));
  gradients_ = graph.Since(begin);
  begin = graph.size();
  GACCD_RETURN_IF_ERROR(exchange_->RecordGatherSquares(graph, Squares(), {compute}));
  squares_ = graph.Since(begin);
  return Status::Ok();
}

Status CudaShards::BeforeCollective(std::string_view what) {
  return options_.overlap ? Status::Ok() : waiter_.WaitForStream(compute_, what);
}

Status CudaShards::Gather(const UpdateGraph::Nodes& nodes, std::string_view what) {
  GACCD_RETURN_IF_ERROR(BeforeCollective(what));
  return graph_->Run(nodes);
}

Status CudaShards::GatherSquares(const UpdateControl* control) {
  GACCD_RETURN_IF_ERROR(BlockSquares(compute_, memory_.gradients + own().first, own().elements,
                                     control, exchange_->OwnSquares(Squares()).data()));
  return Gather(squares_, "squares of the own part");
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
  UpdateGraph first;
  GACCD_RETURN_IF_ERROR(exchange_->RecordReduce(first, Whole(gradients), {stream}));
  GACCD_RETURN_IF_ERROR(exchange_->RecordGather(first, Whole(gradients), {stream}));
  GACCD_RETURN_IF_ERROR(first.Run(first.Since(0)));
  return waiter_.WaitForStream(stream, "first exchange of parts");
}

}  // namespace gaccd
