// CpuContext: what the CPU kernels of one rank share: oneDNN's engine and stream, packed copies of
// its weights, and the type of the sums of products. Used by the thread that created it, for which
// oneDNN is limited to one thread: one process per core is faster than one process with many
// threads.
#pragma once

#include <dnnl_types.h>

#include <dnnl.hpp>
#include <memory>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

class PackedWeights;

class CpuContext {
 public:
  // f64_sums: products and convolutions of f32 values sum in f64 (f64_product.h), without oneDNN.
  // kInternal if oneDNN fails.
  static Result<std::unique_ptr<CpuContext>> Create(bool f64_sums = false);
  ~CpuContext();
  CpuContext(const CpuContext&) = delete;
  CpuContext& operator=(const CpuContext&) = delete;

  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] const dnnl::stream& stream() const { return stream_; }
  [[nodiscard]] PackedWeights& packed_weights() { return *packed_weights_; }
  [[nodiscard]] bool f64_sums() const { return f64_sums_; }

 private:
  explicit CpuContext(bool f64_sums);

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::unique_ptr<PackedWeights> packed_weights_;
  bool f64_sums_;
};

// Converts results of oneDNN's C functions to a Status.

// OK for success. NoMemory() for dnnl_out_of_memory, as oneDNN allocates workspaces at run time;
// the result is then undefined. Otherwise kInternal: "`what`: dnnl_status_t 3".
[[nodiscard]] Status DnnlStatus(dnnl_status_t status, std::string_view what);

}  // namespace gaccd
