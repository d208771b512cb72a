// LibraryPlan: an operation that a library of GPU kernels has prepared, to be run many times.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

template <typename Pointers>
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  [[nodiscard]] virtual std::int64_t workspace_bytes() const = 0;
  // `workspace`: workspace_bytes(), at a multiple of 256; its content is lost. Cheap: may be called
  // before every Run().
  virtual void Bind(const Pointers& pointers, void* workspace) = 0;
  // Enqueues it on CudaContext::compute(), also while that stream is being captured. kInternal
  // before Bind(). A recorded graph keeps the pointers of its moment; the plan has to stay.
  virtual Status Run() = 0;
};

}  // namespace gaccd
