#include "tests/ranks/device_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"

namespace gaccd::tests {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::uint8_t kGuard = 0x5a;

Status Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
            cudaStream_t stream) {
  if (bytes == 0) return Status::Ok();
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, stream), "copy"));
  return CudaStatus(cudaStreamSynchronize(stream), "copy");
}

}  // namespace

class DeviceCopies::Memory final : public CommMemory {
 public:
  Memory(std::unique_ptr<CommMemory> device, std::unique_ptr<CommMemory> host,
         std::shared_ptr<Mirrors> mirrors)
      : device_(std::move(device)), host_(std::move(host)), mirrors_(std::move(mirrors)) {
    mirrors_->push_back({static_cast<std::byte*>(host_->data()),
                         static_cast<std::byte*>(device_->data()), device_->bytes()});
  }
  ~Memory() override {
    mirrors_->remove_if([&](const Mirror& mirror) { return mirror.host == host_->data(); });
  }
  [[nodiscard]] void* data() const override { return host_->data(); }
  [[nodiscard]] std::size_t bytes() const override { return device_->bytes(); }

 private:
  std::unique_ptr<CommMemory> device_;
  std::unique_ptr<CommMemory> host_;
  std::shared_ptr<Mirrors> mirrors_;
};

Result<std::unique_ptr<Communicator>> DeviceCopies::Wrap(Communicator* inner,
                                                         std::unique_ptr<Communicator> owned) {
  GACCD_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  return std::unique_ptr<Communicator>(
      new DeviceCopies(inner, std::move(owned), std::move(stream)));
}

Result<std::unique_ptr<Communicator>> DeviceCopies::Make(Communicator& inner) {
  return Wrap(&inner, nullptr);
}

Result<std::unique_ptr<CommMemory>> DeviceCopies::Allocate(std::size_t bytes) {
  GACCD_ASSIGN_OR_RETURN(auto device, inner_->Allocate(bytes));
  const auto address = reinterpret_cast<std::uintptr_t>(device->data());
  if (address % 4096 != 0) {
    return Status(ErrorKind::kInternal, "device memory is not aligned to 4096");
  }
  GACCD_ASSIGN_OR_RETURN(auto host, AllocateHostMemory(bytes));
  // What the device really holds: the suite looks for zeros.
  GACCD_RETURN_IF_ERROR(
      Copy(host->data(), device->data(), bytes, cudaMemcpyDeviceToHost, stream_.get()));
  return std::unique_ptr<CommMemory>(
      std::make_unique<Memory>(std::move(device), std::move(host), mirrors_));
}

Status DeviceCopies::CopyIn(const ConstBuffer& host, Slot* slot) {
  const auto* data = static_cast<const std::byte*>(host.data);
  slot->device = nullptr;
  slot->guarded = false;
  for (const Mirror& mirror : *mirrors_) {
    const std::less_equal<> before;
    if (!before(mirror.host, data) || !before(data + host.bytes(), mirror.host + mirror.bytes)) {
      continue;
    }
    slot->device = mirror.device + (data - mirror.host);
  }
  if (slot->device == nullptr) {
    if (slot->buffer.bytes() < host.bytes() + kGuardBytes) {
      GACCD_ASSIGN_OR_RETURN(slot->buffer,
                             DeviceBuffer::Allocate(host.bytes() + kGuardBytes, "a copy"));
    }
    slot->device = slot->buffer.as<std::byte>();
    slot->guarded = true;
    const std::vector<std::uint8_t> guard(kGuardBytes, kGuard);
    GACCD_RETURN_IF_ERROR(Copy(slot->device + host.bytes(), guard.data(), kGuardBytes,
                               cudaMemcpyHostToDevice, stream_.get()));
  }
  return Copy(slot->device, data, host.bytes(), cudaMemcpyHostToDevice, stream_.get());
}

Status DeviceCopies::CheckGuard(const Slot& slot, std::size_t bytes) {
  if (!slot.guarded) return Status::Ok();
  std::vector<std::uint8_t> guard(kGuardBytes);
  GACCD_RETURN_IF_ERROR(
      Copy(guard.data(), slot.device + bytes, kGuardBytes, cudaMemcpyDeviceToHost, stream_.get()));
  if (std::ranges::all_of(guard, [](std::uint8_t byte) { return byte == kGuard; })) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal, StrCat("wrote past a buffer of ", bytes, " bytes on the device")};
}

Status DeviceCopies::CheckInput(const ConstBuffer& host, const Slot& slot) {
  std::vector<std::byte> found(host.bytes());
  GACCD_RETURN_IF_ERROR(
      Copy(found.data(), slot.device, host.bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  if (host.bytes() > 0 && std::memcmp(found.data(), host.data, host.bytes()) != 0) {
    return {ErrorKind::kInternal, "changed its input on the device"};
  }
  return CheckGuard(slot, host.bytes());
}

Status DeviceCopies::CopyOut(const MutableBuffer& host, const Slot& slot) {
  GACCD_RETURN_IF_ERROR(
      Copy(host.data, slot.device, host.bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  return CheckGuard(slot, host.bytes());
}

Status DeviceCopies::WaitForStream() {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_.get());
    // Also after success: collectives that were aborted leave the stream as if they were done.
    GACCD_RETURN_IF_ERROR(inner_->Poll());
    if (state != cudaErrorNotReady) return CudaStatus(state, "cudaStreamQuery");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

template <typename Operation>
Status DeviceCopies::Run(const ConstBuffer& in, const MutableBuffer& out,
                         const Operation& operation) {
  const bool in_place = in.data == out.data && in.count == out.count;
  // Or one is a part of the other, where that has a place on the device.
  const auto within = [](const ConstBuffer& part, const ConstBuffer& whole) {
    const auto* begin = static_cast<const std::byte*>(whole.data);
    const auto* first = static_cast<const std::byte*>(part.data);
    return begin <= first && first < begin + whole.bytes();
  };
  const bool apart = !within(in, out) && !within(out, in);
  GACCD_RETURN_IF_ERROR(CopyIn(out, &out_));
  if (!in_place) GACCD_RETURN_IF_ERROR(CopyIn(in, &in_));
  const Slot& from = in_place ? out_ : in_;
  GACCD_RETURN_IF_ERROR(
      operation(ConstBuffer{from.device, in.count, in.dtype, MemoryKind::kCuda},
                MutableBuffer{out_.device, out.count, out.dtype, MemoryKind::kCuda}));
  GACCD_RETURN_IF_ERROR(WaitForStream());
  if (apart) GACCD_RETURN_IF_ERROR(CheckInput(in, in_));
  return CopyOut(out, out_);
}

Status DeviceCopies::DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle) {
  return Run(in, out, [&](ConstBuffer from, MutableBuffer to) {
    return inner_->AllReduceSum(from, to, stream_.handle());
  });
}

Status DeviceCopies::DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                                 MutableBuffer out, StreamHandle) {
  return Run(in, out, [&](ConstBuffer from, MutableBuffer to) {
    return inner_->AllGather(from, counts, to, stream_.handle());
  });
}

Status DeviceCopies::DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                     MutableBuffer out, StreamHandle) {
  return Run(in, out, [&](ConstBuffer from, MutableBuffer to) {
    return inner_->ReduceScatter(from, counts, to, stream_.handle());
  });
}

Status DeviceCopies::DoBroadcast(MutableBuffer buffer, int root, StreamHandle) {
  return Run(buffer, buffer, [&](ConstBuffer, MutableBuffer both) {
    return inner_->Broadcast(both, root, stream_.handle());
  });
}

Result<std::unique_ptr<Communicator>> DeviceCopies::Split(int color, int key) {
  GACCD_ASSIGN_OR_RETURN(auto part, inner_->Split(color, key));
  if (part == nullptr) return std::unique_ptr<Communicator>();
  Communicator* const inner = part.get();
  return Wrap(inner, std::move(part));
}

}  // namespace gaccd::tests
