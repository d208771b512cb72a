#include "collectives/comm/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

cudaStream_t Native(StreamHandle stream) { return static_cast<cudaStream_t>(stream.native); }

ncclDataType_t NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kFP16:
      return ncclFloat16;
  }
  return ncclNumTypes;
}

// Keeps null: NCCL accepts no receive buffer on ranks that receive nothing.
const void* At(const void* data, std::size_t element, DType dtype) {
  if (data == nullptr) return nullptr;
  return static_cast<const std::byte*>(data) + element * SizeOf(dtype);
}
void* At(void* data, std::size_t element, DType dtype) {
  if (data == nullptr) return nullptr;
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}

// Calls piece(first, count) for consecutive pieces until one fails.
template <typename Piece>
ncclResult_t ForPieces(std::size_t count, std::size_t most, const Piece& piece) {
  for (std::size_t first = 0; first < count; first += most) {
    const ncclResult_t result = piece(first, std::min(most, count - first));
    if (result != ncclSuccess && result != ncclInProgress) return result;
  }
  return ncclSuccess;
}

bool AllEqual(std::span<const std::int64_t> counts) {
  return std::ranges::all_of(counts, [&](std::int64_t count) { return count == counts.front(); });
}

}  // namespace

NcclCommunicator::NcclCommunicator(Communicator* over, std::unique_ptr<Communicator> owned,
                                   const NcclOptions& options, std::unique_ptr<NcclWatch> watch)
    : options_(options),
      over_(over),
      owned_(std::move(owned)),
      watch_(std::move(watch)),
      windows_(std::make_shared<NcclWindows>(options.api)) {}

NcclCommunicator::~NcclCommunicator() {
  windows_->DeregisterAll();
  watch_->End();
}

Status NcclCommunicator::DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) {
  if (in.memory == MemoryKind::kHost) return over_->AllReduceSum(in, out, stream);
  return watch_->Enqueue(Operation::kAllReduce, Native(stream),
                         [&](ncclComm_t comm) { return SumPieces(in, out, comm, Native(stream)); });
}

Status NcclCommunicator::DoAllReduceSums(std::span<const MutableBuffer> buffers,
                                         StreamHandle stream) {
  if (buffers.front().memory == MemoryKind::kHost) return over_->AllReduceSums(buffers, stream);
  return watch_->Enqueue(Operation::kAllReduce, Native(stream), [&](ncclComm_t comm) {
    for (const MutableBuffer& buffer : buffers) {
      const ncclResult_t result = SumPieces(buffer, buffer, comm, Native(stream));
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  });
}

ncclResult_t NcclCommunicator::SumPieces(const ConstBuffer& in, const MutableBuffer& out,
                                         ncclComm_t comm, cudaStream_t stream) const {
  return ForPieces(in.count, options_.message_elements, [&](std::size_t i, std::size_t n) {
    return options_.api->AllReduce(At(in.data, i, in.dtype), At(out.data, i, in.dtype), n,
                                   NcclType(in.dtype), ncclSum, comm, stream);
  });
}

Status NcclCommunicator::DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                                     MutableBuffer out, StreamHandle stream) {
  if (in.memory == MemoryKind::kHost) return over_->AllGather(in, counts, out, stream);
  return watch_->Enqueue(Operation::kAllGather, Native(stream), [&](ncclComm_t comm) {
    if (AllEqual(counts) && in.count <= options_.message_elements) {
      return options_.api->AllGather(in.data, out.data, in.count, NcclType(in.dtype), comm,
                                     Native(stream));
    }
    std::size_t offset = 0;
    for (int root = 0; root < size(); ++root) {
      const auto count = static_cast<std::size_t>(counts[static_cast<std::size_t>(root)]);
      void* const rows = At(out.data, offset, in.dtype);
      const ncclResult_t result = BroadcastPieces(root == rank() ? in.data : rows, rows, count,
                                                  in.dtype, root, comm, Native(stream));
      if (result != ncclSuccess) return result;
      offset += count;
    }
    return ncclSuccess;
  });
}

Status NcclCommunicator::DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                         MutableBuffer out, StreamHandle stream) {
  if (in.memory == MemoryKind::kHost) return over_->ReduceScatter(in, counts, out, stream);
  return watch_->Enqueue(Operation::kReduceScatter, Native(stream), [&](ncclComm_t comm) {
    if (AllEqual(counts) && out.count <= options_.message_elements) {
      return options_.api->ReduceScatter(in.data, out.data, out.count, NcclType(in.dtype), ncclSum,
                                         comm, Native(stream));
    }
    std::size_t offset = 0;
    for (int root = 0; root < size(); ++root) {
      const auto count = static_cast<std::size_t>(counts[static_cast<std::size_t>(root)]);
      const ncclResult_t result =
          ReducePieces(At(in.data, offset, in.dtype), root == rank() ? out.data : nullptr, count,
                       in.dtype, root, comm, Native(stream));
      if (result != ncclSuccess) return result;
      offset += count;
    }
    return ncclSuccess;
  });
}

Status NcclCommunicator::DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) {
  if (buffer.memory == MemoryKind::kHost) return over_->Broadcast(buffer, root, stream);
  return watch_->Enqueue(Operation::kBroadcast, Native(stream), [&](ncclComm_t comm) {
    return BroadcastPieces(buffer.data, buffer.data, buffer.count, buffer.dtype, root, comm,
                           Native(stream));
  });
}

ncclResult_t NcclCommunicator::BroadcastPieces(const void* in, void* out, std::size_t count,
                                               DType dtype, int root, ncclComm_t comm,
                                               cudaStream_t stream) const {
  return ForPieces(count, options_.message_elements, [&](std::size_t i, std::size_t n) {
    return options_.api->Broadcast(At(in, i, dtype), At(out, i, dtype), n, NcclType(dtype), root,
                                   comm, stream);
  });
}

ncclResult_t NcclCommunicator::ReducePieces(const void* in, void* out, std::size_t count,
                                            DType dtype, int root, ncclComm_t comm,
                                            cudaStream_t stream) const {
  return ForPieces(count, options_.message_elements, [&](std::size_t i, std::size_t n) {
    return options_.api->Reduce(At(in, i, dtype), At(out, i, dtype), n, NcclType(dtype), ncclSum,
                                root, comm, stream);
  });
}

// Sender and receiver cut a message into the same pieces.
Status NcclCommunicator::DoSend(ConstBuffer message, int to, StreamHandle stream) {
  if (message.memory == MemoryKind::kHost) return over_->Send(message, to);
  return watch_->Enqueue(Operation::kMessage, Native(stream), [&](ncclComm_t comm) {
    return ForPieces(message.count, options_.message_elements, [&](std::size_t i, std::size_t n) {
      return options_.api->Send(At(message.data, i, message.dtype), n, NcclType(message.dtype), to,
                                comm, Native(stream));
    });
  });
}

Status NcclCommunicator::DoReceive(MutableBuffer message, int from, StreamHandle stream) {
  if (message.memory == MemoryKind::kHost) return over_->Receive(message, from);
  const auto receive = [&](ncclComm_t comm) {
    return ForPieces(message.count, options_.message_elements, [&](std::size_t i, std::size_t n) {
      return options_.api->Recv(At(message.data, i, message.dtype), n, NcclType(message.dtype),
                                from, comm, Native(stream));
    });
  };
  return watch_->Enqueue(Operation::kMessage, Native(stream), receive, Native(reader_));
}

Status NcclCommunicator::ConnectMessages() {
  if (size() != 2) {
    return {ErrorKind::kInternal, StrCat("ConnectMessages() of 2 ranks, found ", size())};
  }
  constexpr std::size_t kApart = 16;
  const int peer = 1 - rank();
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer bytes, DeviceBuffer::Allocate(2 * kApart, "messages"));
  GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  // One group for both directions, so that neither waits for the other.
  const auto exchange = [&](ncclComm_t comm) {
    const ncclResult_t sent =
        options_.api->Send(bytes.data(), 1, ncclUint8, peer, comm, stream.get());
    if (sent != ncclSuccess && sent != ncclInProgress) return sent;
    return options_.api->Recv(bytes.as<std::byte>() + kApart, 1, ncclUint8, peer, comm,
                              stream.get());
  };
  GACCD_RETURN_IF_ERROR(watch_->Enqueue(Operation::kMessage, stream.get(), exchange));
  const Status waited = CudaStatus(cudaStreamSynchronize(stream.get()), "connect messages");
  GACCD_RETURN_IF_ERROR(watch_->failure());  // the error of a lost rank, which ended the wait
  return waited;
}

Status NcclCommunicator::Barrier() {
  GACCD_RETURN_IF_ERROR(watch_->failure());
  return over_->Barrier();
}

// The same result on all ranks, so that none continues alone.
Status NcclCommunicator::AgreeOn(const Status& status) {
  NcclHello mine;
  SetError(status, &mine);
  return ExchangeHellos(*over_, mine).status();
}

Result<std::unique_ptr<CommMemory>> NcclCommunicator::Allocate(std::size_t bytes) {
  GACCD_RETURN_IF_ERROR(watch_->failure());
  auto memory = NcclMemory::Allocate(*options_.api, bytes);
  GACCD_RETURN_IF_ERROR(AgreeOn(memory.status()));
  // Ranks on one GPU have no memory that NCCL could map.
  if (options_.gpu_sharing || size() == 1) return std::unique_ptr<CommMemory>(*std::move(memory));
  // NCCL selects its kernel by the window: either all ranks must have one, or none.
  const auto on_all = [this](bool here) -> Result<bool> {
    std::int64_t without = here ? 0 : 1;
    const MutableBuffer counted{&without, 1, DType::kI64, MemoryKind::kHost};
    GACCD_RETURN_IF_ERROR(over_->AllReduceSum(counted, counted));
    return without == 0;
  };
  GACCD_ASSIGN_OR_RETURN(const bool accepted,
                         on_all(NcclWindows::CanRegister((*memory)->data(), bytes)));
  if (accepted) {
    ncclWindow_t window = nullptr;
    const int flags = options_.windows ? NCCL_WIN_COLL_SYMMETRIC : NCCL_WIN_DEFAULT;
    GACCD_ASSIGN_OR_RETURN(const bool here,
                           windows_->Register(*watch_, (*memory)->data(), bytes, flags, &window));
    if (here) (*memory)->Own(windows_, window);
    GACCD_ASSIGN_OR_RETURN(const bool everywhere, on_all(here));
    if (!everywhere) (*memory)->CloseWindow();
  }
  return std::unique_ptr<CommMemory>(*std::move(memory));
}

// The new NCCL communicator is set up like this one. Set-up allocates GPU memory, which may wait
// for operations in flight.
Result<std::unique_ptr<Communicator>> NcclCommunicator::Split(int color, int key) {
  GACCD_RETURN_IF_ERROR(watch_->WaitIdle());
  GACCD_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> part, over_->Split(color, key));
  if (part == nullptr) return part;
  Communicator* const host = part.get();
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ranks, GatherAll(*host, rank()));
  auto made = MakeNcclOver(host, std::move(part), options_);
  if (!made.ok()) return made;
  ShareTrafficCounters(**made);
  parts_.push_back({.watch = static_cast<NcclCommunicator&>(**made).watch_, .ranks = ranks});
  return made;
}

Status NcclCommunicator::Poll() {
  Status failed = watch_->failure();
  if (failed.ok()) failed = FindPartFailure();
  if (failed.ok()) failed = over_->Poll();
  if (failed.ok()) return failed;
  CancelPending(failed);
  return watch_->failure();
}

void NcclCommunicator::CancelPending(const Status& error) {
  const Status failed = watch_->Fail(error);
  // Their kernels may be enqueued on the same stream.
  for (const SplitPart& part : parts_) {
    if (const auto watch = part.watch.lock()) (void)watch->Fail(failed);
  }
}

Status NcclCommunicator::FindPartFailure() const {
  for (const SplitPart& part : parts_) {
    const auto watch = part.watch.lock();
    const Status failed = watch == nullptr ? Status::Ok() : watch->failure();
    if (failed.ok()) continue;
    return {failed.kind(), StrCat("the communicator of ranks ", Join(part.ranks, ", "),
                                  " (renumbered from 0 below): ", failed.message())};
  }
  return Status::Ok();
}

std::optional<CommFailure> NcclCommunicator::failure() const {
  for (const SplitPart& part : parts_) {
    const auto watch = part.watch.lock();
    auto lost = watch == nullptr ? std::nullopt : watch->lost();
    if (!lost || lost->missing.empty()) continue;
    for (MissingRank& missing : lost->missing) {
      missing.rank = part.ranks[static_cast<std::size_t>(missing.rank)];
    }
    return lost;
  }
  auto lost = watch_->lost();
  return lost ? lost : over_->failure();
}

void NcclCommunicator::Abort(int exit_code) noexcept {
  // Among processes this does not return, and the end of a process frees its GPU. Among threads,
  // the other ranks are notified first, then the kernels of this one end.
  over_->Abort(exit_code);
  (void)watch_->Fail({ErrorKind::kUnavailable, StrCat("has aborted with exit code ", exit_code)});
}

}  // namespace gaccd
