#include "tests/ranks/device_messages.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/chain_links.h"

namespace gaccd::tests {
namespace {

struct Shape {
  std::size_t count = 0;
  DType dtype = DType::kF32;
};

// Of one direction: messages one after the other in one memory, each followed by a guard.
struct Way {
  Communicator* comm = nullptr;
  int peer = 0;
  int sender = 0;  // in the whole communicator
  bool up = false;
  CudaStream stream = {};
  DeviceBuffer memory = {};
};

constexpr std::size_t kGapBytes = 16;

std::vector<Shape> MakeShapes(std::size_t largest) {
  return {{1, DType::kF32}, {0, DType::kF32}, {largest, DType::kBF16},    {largest, DType::kF32},
          {7, DType::kI64}, {3, DType::kU8},  {largest / 2, DType::kFP16}};
}

std::size_t RingPlace(const std::vector<Shape>& shapes, std::size_t index) {
  std::size_t place = 0;
  for (std::size_t i = 0; i < index; ++i) {
    place += (shapes[i].count * SizeOf(shapes[i].dtype) + kGapBytes + 15) / 16 * 16;
  }
  return place;
}

// The bytes of message `index` in this round.
std::vector<std::uint8_t> MessageBytes(const Way& way, const Shape& shape, std::size_t index,
                                       int round) {
  std::vector<std::uint8_t> bytes(shape.count * SizeOf(shape.dtype));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<std::uint8_t>(i * 7 + index * 31 + static_cast<std::size_t>(round) * 5 +
                                  static_cast<std::size_t>(way.sender) * 13 + (way.up ? 101 : 0));
  }
  return bytes;
}

Status Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const Way& way) {
  if (bytes == 0) return Status::Ok();
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, way.stream.get()), "copy of a message"));
  return Status::Ok();
}

Status Wait(const Way& way) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(way.stream.get());
    GACCD_RETURN_IF_ERROR(way.comm->Poll());
    if (state != cudaErrorNotReady) return CudaStatus(state, "messages");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

Status Send(const Way& way, const std::vector<Shape>& shapes, int round) {
  // First of all: behind a message a copy from memory that is not page-locked would hold the host
  // until the other side receives, whose host may be held in the same way.
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<std::uint8_t> bytes = MessageBytes(way, shapes[i], i, round);
    GACCD_RETURN_IF_ERROR(Copy(way.memory.as<std::byte>() + RingPlace(shapes, i), bytes.data(),
                               bytes.size(), cudaMemcpyHostToDevice, way));
  }
  GACCD_RETURN_IF_ERROR(Wait(way));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::byte* const at = way.memory.as<std::byte>() + RingPlace(shapes, i);
    GACCD_RETURN_IF_ERROR(way.comm->Send({at, shapes[i].count, shapes[i].dtype, MemoryKind::kCuda},
                                         way.peer, way.stream.handle()));
  }
  return Status::Ok();
}

Status Receive(const Way& way, const std::vector<Shape>& shapes) {
  const std::vector<std::uint8_t> guard(way.memory.bytes(), 0x5a);
  GACCD_RETURN_IF_ERROR(
      Copy(way.memory.data(), guard.data(), guard.size(), cudaMemcpyHostToDevice, way));
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::byte* const at = way.memory.as<std::byte>() + RingPlace(shapes, i);
    GACCD_RETURN_IF_ERROR(way.comm->Receive(
        {at, shapes[i].count, shapes[i].dtype, MemoryKind::kCuda}, way.peer, way.stream.handle()));
  }
  return Status::Ok();
}

Status CheckReceived(const Way& way, const std::vector<Shape>& shapes, int round) {
  std::vector<std::uint8_t> found(way.memory.bytes());
  GACCD_RETURN_IF_ERROR(
      Copy(found.data(), way.memory.data(), found.size(), cudaMemcpyDeviceToHost, way));
  GACCD_RETURN_IF_ERROR(Wait(way));
  std::vector<std::uint8_t> expected(found.size(), 0x5a);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<std::uint8_t> bytes = MessageBytes(way, shapes[i], i, round);
    std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(RingPlace(shapes, i)));
  }
  if (found == expected) return Status::Ok();
  const auto place = std::ranges::mismatch(found, expected).in1 - found.begin();
  return {ErrorKind::kInternal, StrCat("messages of rank ", way.sender, " in round ", round,
                                       ": wrong from byte ", place, " on")};
}

}  // namespace

Status CheckDeviceMessages(Communicator& comm, std::size_t largest) {
  const std::vector<Shape> shapes = MakeShapes(largest);
  GACCD_ASSIGN_OR_RETURN(const ChainLinks links, MakeChainLinks(comm));
  const int rank = comm.rank();
  std::vector<Way> sent;
  std::vector<Way> received;
  const auto add = [&](const auto& link, int peer, int sender, bool up) {
    if (link) (sender == rank ? sent : received).push_back({link.get(), peer, sender, up});
  };
  add(links.up_to_after, 1, rank, true);
  add(links.down_to_before, 0, rank, false);
  add(links.up_from_before, 0, rank - 1, true);
  add(links.down_from_after, 1, rank + 1, false);
  for (auto* ways : {&sent, &received}) {
    for (Way& way : *ways) {
      GACCD_ASSIGN_OR_RETURN(way.stream, CudaStream::Create());
      GACCD_ASSIGN_OR_RETURN(way.memory,
                             DeviceBuffer::Allocate(RingPlace(shapes, shapes.size()), "messages"));
    }
  }
  Status first;
  for (int round = 0; round < 3; ++round) {
    for (const Way& way : sent) GACCD_RETURN_IF_ERROR(Send(way, shapes, round));
    for (const Way& way : received) GACCD_RETURN_IF_ERROR(Receive(way, shapes));
    for (const Way& way : received) {
      const Status checked = CheckReceived(way, shapes, round);
      if (!checked.ok() && checked.kind() != ErrorKind::kInternal) return checked;
      if (first.ok()) first = checked;
    }
    for (const Way& way : sent) GACCD_RETURN_IF_ERROR(Wait(way));
  }
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  return first;
}

}  // namespace gaccd::tests
