// Messages between two ranks of an MPI communicator.
#include <algorithm>

#include "collectives/comm/mpi_communicator.h"

namespace gaccd {
namespace {

constexpr int kMessageTag = 1;

// The piece of a message at `offset`. An empty message has one empty piece.
template <typename Byte>
std::span<Byte> PieceAt(std::span<Byte> message, std::size_t offset) {
  return message.subspan(offset, std::min(MpiSends::kPieceBytes, message.size() - offset));
}

}  // namespace

Status MpiSends::Add(MPI_Comm comm, const ConstBuffer& message, int to) {
  const std::span bytes(static_cast<const std::byte*>(message.data), message.bytes());
  std::size_t offset = 0;
  do {
    const auto piece = PieceAt(bytes, offset);
    UnderWay& added = under_way_.emplace_back();
    added.copy.assign(piece.begin(), piece.end());
    GACCD_RETURN_IF_ERROR(
        MpiStatus(MPI_Isend(added.copy.data(), static_cast<int>(added.copy.size()), MPI_BYTE, to,
                            kMessageTag, comm, &added.request),
                  "MPI_Isend"));
    offset += piece.size();
  } while (offset < bytes.size());
  return Status::Ok();
}

Status MpiSends::Move() {
  while (!under_way_.empty()) {
    int done = 0;
    GACCD_RETURN_IF_ERROR(MpiStatus(MPI_Test(&under_way_.front().request, &done, MPI_STATUS_IGNORE),
                                    "MPI_Test of a message"));
    if (done == 0) break;
    under_way_.pop_front();
  }
  return Status::Ok();
}

Status MpiCommunicator::DoSend(ConstBuffer message, int to, StreamHandle /*stream*/) {
  GACCD_RETURN_IF_ERROR(watch_->failure());
  Status status = sends_.Move();
  if (status.ok()) status = sends_.Add(comm_, message, to);
  return status.ok() ? status : Break(std::move(status));
}

Status MpiCommunicator::DoReceive(MutableBuffer message, int from, StreamHandle /*stream*/) {
  const std::span bytes(static_cast<std::byte*>(message.data), message.bytes());
  std::size_t offset = 0;
  do {
    const auto piece = PieceAt(bytes, offset);
    GACCD_RETURN_IF_ERROR(ReceivePiece(piece, from));
    offset += piece.size();
  } while (offset < bytes.size());
  return Status::Ok();
}

Status MpiCommunicator::ReceivePiece(std::span<std::byte> piece, int from) {
  GACCD_RETURN_IF_ERROR(watch_->failure());
  MPI_Request request = MPI_REQUEST_NULL;
  Status status = MpiStatus(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from,
                                      kMessageTag, comm_, &request),
                            "MPI_Irecv");
  if (!status.ok()) return Break(std::move(status));
  MPI_Status found;
  status = watch_->WaitForMessage(from, [&]() -> Result<bool> {
    GACCD_RETURN_IF_ERROR(sends_.Move());
    int done = 0;
    GACCD_RETURN_IF_ERROR(MpiStatus(MPI_Test(&request, &done, &found), "MPI_Test of a message"));
    return done != 0;
  });
  if (status.ok()) {
    int bytes = 0;
    MPI_Get_count(&found, MPI_BYTE, &bytes);
    if (static_cast<std::size_t>(bytes) != piece.size()) {
      status = watch_->Fail(
          MessageSizeError(from, piece.size(), static_cast<std::size_t>(bytes), topology_.hosts));
    }
  }
  if (!status.ok()) broken_->store(true);
  return status;
}

Status MpiCommunicator::FlushSends() {
  if (sends_.empty()) return Status::Ok();
  Status status = watch_->WaitForMessage(rank_, [&]() -> Result<bool> {
    GACCD_RETURN_IF_ERROR(sends_.Move());
    return sends_.empty();
  });
  if (!status.ok()) broken_->store(true);
  return status;
}

}  // namespace gaccd
