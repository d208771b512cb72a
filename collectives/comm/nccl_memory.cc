#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_communicator.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kPatience{200};  // for an abort

}  // namespace

Result<bool> NcclWindows::Register(NcclWatch& watch, void* data, std::size_t bytes, int flags,
                                   ncclWindow_t* window) {
  *window = nullptr;
  GACCD_RETURN_IF_ERROR(watch.Call("ncclCommWindowRegister", [&](ncclComm_t comm) {
    return api_->CommWindowRegister(comm, data, bytes, window, flags);
  }));
  if (*window == nullptr) return false;
  open_.push_back({&watch, *window});
  return true;
}

bool NcclWindows::CanRegister(const void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return bytes > 0 && address % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
}

bool NcclWindows::Close(const Entry& entry) const {
  const Status closed = entry.watch->Call("ncclCommWindowDeregister", [&](ncclComm_t comm) {
    return api_->CommWindowDeregister(comm, entry.window);
  });
  return closed.ok() || entry.watch->AbortEndsWithin(kPatience);
}

bool NcclWindows::Deregister(ncclWindow_t window) {
  const auto entry = std::ranges::find(open_, window, &Entry::window);
  if (entry == open_.end()) return std::ranges::find(kept_, window) == kept_.end();
  const bool closed = Close(*entry);
  if (!closed) kept_.push_back(window);
  open_.erase(entry);
  return closed;
}

void NcclWindows::DeregisterAll() {
  while (!open_.empty()) (void)Deregister(open_.back().window);
}

Result<std::unique_ptr<NcclMemory>> NcclMemory::Allocate(const NcclApi& api, std::size_t bytes) {
  std::unique_ptr<NcclMemory> memory(new NcclMemory(&api));
  if (bytes == 0) return memory;
  const ncclResult_t result = api.MemAlloc(&memory->data_, bytes);
  const Status status = NcclStatus(api, nullptr, result, "ncclMemAlloc");
  if (!status.ok()) {
    std::size_t free = 0;
    std::size_t total = 0;
    (void)cudaGetLastError();  // clear the error: it is reported here
    (void)cudaMemGetInfo(&free, &total);
    memory->data_ = nullptr;
    return Status(ErrorKind::kOs,
                  StrCat("no memory on the GPU for reduced buffers: wanted ", bytes,
                         " bytes, found ", free, " of ", total, " free; ", status.message()));
  }
  memory->bytes_ = bytes;
  GACCD_RETURN_IF_ERROR(memory->SetZero());
  return memory;
}

// On a separate stream, as this must not wait for collectives in flight.
Status NcclMemory::SetZero() {
  GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemsetAsync(data_, 0, bytes_, stream.get()), "zero reduced buffers"));
  return CudaStatus(cudaStreamSynchronize(stream.get()), "zero reduced buffers");
}

NcclMemory::~NcclMemory() {
  CloseWindow();
  if (window_ == nullptr && data_ != nullptr) (void)api_->MemFree(data_);
}

void NcclMemory::CloseWindow() {
  if (window_ != nullptr && windows_->Deregister(window_)) window_ = nullptr;
}

void NcclMemory::Own(std::shared_ptr<NcclWindows> windows, ncclWindow_t window) {
  windows_ = std::move(windows);
  window_ = window;
}

}  // namespace gaccd
