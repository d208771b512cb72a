// LibraryPlan: an operation prepared by a library of GPU kernels, to be run many times.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

template <typename Pointers>
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  [[nodiscard]] virtual std::int64_t workspace_bytes() const = 0;
  // workspace: workspace_bytes(), aligned to 256; its content is not preserved. Cheap: may be
  // called before every Run().
  virtual void Bind(const Pointers& pointers, void* workspace) = 0;
  // Enqueues the operation on CudaContext::compute(), also during stream capture. kInternal before
  // Bind(). A captured graph keeps the current pointers; the plan must outlive it.
  virtual Status Run() = 0;
};

}  // namespace gaccd
