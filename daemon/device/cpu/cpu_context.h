// CpuContext: what the kernels of one rank share on the CPU: oneDNN's engine and stream, and the
// packed copies of its weights. Used by one thread, the one that made it: oneDNN is set to one
// thread there, because one process per core beats one process with many threads.
#pragma once

#include <dnnl.hpp>
#include <memory>

#include "collectives/base/result.h"

namespace gaccd {

class PackedWeights;

class CpuContext {
 public:
  // kInternal when oneDNN refuses.
  static Result<std::unique_ptr<CpuContext>> Create();
  ~CpuContext();
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] const dnnl::stream& stream() const { return stream_; }
  [[nodiscard]] PackedWeights& packed_weights() { return *packed_weights_; }

 private:
  CpuContext();

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unique_ptr<PackedWeights> packed_weights_;
};

}  // namespace gaccd
