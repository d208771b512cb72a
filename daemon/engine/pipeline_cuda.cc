#include "daemon/engine/pipeline_cuda.h"

#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/optim/optimizer_cuda.h"

namespace gaccd {

namespace {

using Message = Replica::Message;

std::string_view MessageName(Message which) {
  switch (which) {
    case Message::kReceived:
      return "values from the stage before";
    case Message::kSent:
      return "values to the stage after";
    case Message::kReceivedGradient:
      return "gradients from the stage after";
    case Message::kSentGradient:
      return "gradients to the stage before";
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<CudaPipeline>> CudaPipeline::Make(Communicator& comm,
                                                         const PipelineStage& stage,
                                                         const FlatLayout& layout,
                                                         std::int64_t state_buffers) {
  std::unique_ptr<CudaPipeline> made(new CudaPipeline(stage, StagePlaces(layout, stage)));
  auto exchange = PipelineExchange::Make(comm, stage, layout, made->places_, state_buffers);
  // Before the links are made: they are collective over ranks for which it may not have failed.
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, exchange.status()).status);
  made->exchange_ = *std::move(exchange);
  GACCD_ASSIGN_OR_RETURN(made->links_, MakeChainLinks(made->exchange_->pipeline()));
  return made;
}

Status CudaPipeline::CreateStreams(cudaStream_t compute) {
  const auto create = [&](Message which, std::unique_ptr<Communicator>& link) -> Status {
    if (!link) return Status::Ok();
    return Ring(which).emplace(std::move(link), compute).CreateStream();
  };
  GACCD_RETURN_IF_ERROR(create(Message::kReceived, links_.up_from_before));
  GACCD_RETURN_IF_ERROR(create(Message::kSent, links_.up_to_after));
  GACCD_RETURN_IF_ERROR(create(Message::kReceivedGradient, links_.down_from_after));
  return create(Message::kSentGradient, links_.down_to_before);
}

// Stage by stage, first forward, then backward: each stage waits only for the one before it.
Status CudaPipeline::ExchangeFirst(float* values, const ShardExchange* shards,
                                   cudaStream_t stream) {
  const MutableBuffer one{values, 1, DType::kF32, MemoryKind::kCuda};
  if (auto& ring = Ring(Message::kReceived)) GACCD_RETURN_IF_ERROR(ring->ReceiveFirst(one));
  if (auto& ring = Ring(Message::kSent)) GACCD_RETURN_IF_ERROR(ring->SendFirst(one));
  if (auto& ring = Ring(Message::kReceivedGradient)) {
    GACCD_RETURN_IF_ERROR(ring->ReceiveFirst(one));
  }
  if (auto& ring = Ring(Message::kSentGradient)) GACCD_RETURN_IF_ERROR(ring->SendFirst(one));
  UpdateGraph first;
  GACCD_RETURN_IF_ERROR(first.AllReduceSum(exchange_->pipeline(), {&one, 1}, {stream}));
  GACCD_RETURN_IF_ERROR(RecordReduce(first, values, shards, stream));
  GACCD_RETURN_IF_ERROR(RecordSendShared(first, values, stream));
  return first.Run(first.Since(0));
}

Status CudaPipeline::Allocate(const StageRings& rings, UpdateGraph& graph, cudaStream_t stream) {
  for (const Message which :
       {Message::kReceived, Message::kSent, Message::kReceivedGradient, Message::kSentGradient}) {
    if (auto& ring = Ring(which)) GACCD_RETURN_IF_ERROR(ring->Allocate(rings[which]));
  }
  GACCD_ASSIGN_OR_RETURN(squares_,
                         DeviceBuffer::Allocate(stage_.stages() * sizeof(double), "norm"));
  graph_ = &graph;
  const std::size_t begin = graph.size();
  GACCD_RETURN_IF_ERROR(exchange_->RecordGatherByStage(
      graph, {squares_.data(), stage_.stages(), DType::kF64, MemoryKind::kCuda}, {stream}));
  gather_ = graph.Since(begin);
  return Status::Ok();
}

Status CudaPipeline::Post(Message which, const ConstBuffer& value, std::int64_t micro_batch) {
  auto& ring = Ring(which);
  return ring && value.count > 0 ? ring->Post(value, ring->RingPlace(micro_batch)) : Status::Ok();
}

Status CudaPipeline::Await(Message which, std::int64_t micro_batch) {
  auto& ring = Ring(which);
  return ring ? ring->Await(ring->RingPlace(micro_batch)) : Status::Ok();
}

const void* CudaPipeline::Received(Message which, std::int64_t micro_batch) const {
  const auto& ring = Ring(which);
  return ring ? ring->At(ring->RingPlace(micro_batch)) : nullptr;
}

Status CudaPipeline::Release(Message which, std::int64_t micro_batch) {
  auto& ring = Ring(which);
  return ring ? ring->Release(ring->RingPlace(micro_batch)) : Status::Ok();
}

Status CudaPipeline::Send(Message which, const ConstBuffer& value) {
  auto& ring = Ring(which);
  return ring && value.count > 0 ? ring->Send(value) : Status::Ok();
}

Status CudaPipeline::RecordReduce(UpdateGraph& graph, float* gradients, const ShardExchange* shards,
                                  cudaStream_t stream) const {
  GACCD_RETURN_IF_ERROR(exchange_->RecordReduceShared(graph, Whole(gradients), {stream}));
  const auto elements = static_cast<std::size_t>(stage_.own().elements);
  if (shards != nullptr) return shards->RecordReduce(graph, {gradients, elements}, {stream});
  Communicator& ranks = exchange_->same_stage();
  if (ranks.size() == 1) return Status::Ok();
  const MutableBuffer own{gradients, elements, DType::kF32, MemoryKind::kCuda};
  return graph.AllReduceSum(ranks, {&own, 1}, {stream});
}

// Gathered and added in the order of the stages: the same bits on all ranks of all pipelines.
Status CudaPipeline::Decide(UpdateControl* control, void* scratch, cudaStream_t stream) {
  double* const own = squares_.as<double>() + stage_.stage;
  GACCD_RETURN_IF_ERROR(SumSquares(stream, stage_.own().elements, control, own, scratch));
  GACCD_RETURN_IF_ERROR(graph_->Run(gather_));
  return DecideFromParts(stream, squares_.as<double>(), static_cast<int>(stage_.stages()), control);
}

// The rings first: their errors name the message that is waited for.
Status CudaPipeline::Poll() {
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    if (!rings_[i]) continue;
    const Status status = rings_[i]->Poll();
    if (!status.ok()) return status.WithContext(MessageName(static_cast<Message>(i)));
  }
  return exchange_->Poll();
}

void CudaPipeline::CancelPending(const Status& error) {
  exchange_->CancelPending(error);
  for (auto& ring : rings_) {
    if (ring) ring->CancelPending(error);
  }
}

std::vector<cudaStream_t> CudaPipeline::streams() const {
  std::vector<cudaStream_t> streams;
  for (const auto& ring : rings_) {
    if (ring) streams.push_back(ring->stream());
  }
  return streams;
}

namespace {

Status WaitFor(const CudaEvent& event, cudaStream_t stream) {
  return CudaStatus(cudaStreamWaitEvent(stream, event.get(), 0), "wait for a message");
}

Status Record(const CudaEvent& event, cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(event.get(), stream), "mark of a message");
}

}  // namespace

Status CudaMessageRing::CreateStream() {
  // High priority: a neighbour waits for this copy, which takes much less time than its kernels.
  GACCD_ASSIGN_OR_RETURN(stream_, CudaStream::Create(CudaStream::Priority::kHigh));
  GACCD_ASSIGN_OR_RETURN(copied_, CudaEvent::Create());
  return Status::Ok();
}

Status CudaMessageRing::Allocate(const MessageRing& size) {
  bytes_ = size.bytes;
  GACCD_ASSIGN_OR_RETURN(
      memory_,
      DeviceBuffer::Allocate(static_cast<std::size_t>(size.places * size.bytes), "messages"));
  for (std::vector<CudaEvent>* events : {&free_, &arrived_}) {
    events->resize(static_cast<std::size_t>(size.places));
    for (CudaEvent& event : *events) {
      GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
    }
  }
  return Status::Ok();
}

Status CudaMessageRing::ReceiveFirst(const MutableBuffer& value) {
  return link_->Receive(value, peer(), stream_.handle());
}

Status CudaMessageRing::SendFirst(const ConstBuffer& value) {
  return link_->Send(value, peer(), stream_.handle());
}

Status CudaMessageRing::Post(const ConstBuffer& value, std::int64_t place) {
  if (place < 0 || place >= places() || static_cast<std::int64_t>(value.bytes()) > bytes_) {
    return {ErrorKind::kInternal,
            StrCat("message: expected at most ", bytes_, " bytes in a place below ", places(),
                   ", found ", value.bytes(), " in ", place)};
  }
  void* const memory = memory_.as<std::byte>() + place * bytes_;
  // An event that was never recorded counts as completed.
  GACCD_RETURN_IF_ERROR(WaitFor(free_[static_cast<std::size_t>(place)], stream_.get()));
  GACCD_RETURN_IF_ERROR(link_->Receive({memory, value.count, value.dtype, MemoryKind::kCuda},
                                       peer(), stream_.handle()));
  return Record(arrived_[static_cast<std::size_t>(place)], stream_.get());
}

Status CudaMessageRing::Await(std::int64_t place) {
  if (places() == 0) return Status::Ok();
  return WaitFor(arrived_[static_cast<std::size_t>(place)], compute_);
}

Status CudaMessageRing::Release(std::int64_t place) {
  return Record(free_[static_cast<std::size_t>(place)], compute_);
}

Status CudaMessageRing::Send(const ConstBuffer& value) {
  if (places() == 0 || static_cast<std::int64_t>(value.bytes()) > bytes_) {
    return {ErrorKind::kInternal,
            StrCat("message: expected at most ", bytes_, " bytes, found ", value.bytes())};
  }
  const std::int64_t place = next_;
  next_ = (next_ + 1) % places();
  void* const memory = memory_.as<std::byte>() + place * bytes_;
  const CudaEvent& left = free_[static_cast<std::size_t>(place)];
  GACCD_RETURN_IF_ERROR(WaitFor(left, compute_));
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(memory, value.data, value.bytes(), cudaMemcpyDeviceToDevice, compute_),
      "copy of a message"));
  GACCD_RETURN_IF_ERROR(Record(copied_, compute_));
  GACCD_RETURN_IF_ERROR(WaitFor(copied_, stream_.get()));
  GACCD_RETURN_IF_ERROR(
      link_->Send({memory, value.count, value.dtype, MemoryKind::kCuda}, peer(), stream_.handle()));
  return Record(left, stream_.get());
}

}  // namespace gaccd
