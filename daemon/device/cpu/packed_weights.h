// PackedWeights: copies of weights in the blocked layout that is fastest for oneDNN's products,
// updated once per update, and rounded to bf16 if that is the type of the layout. Products of the
// same weight with different micro-batch sizes share a copy if oneDNN uses the same layout. Used by
// one thread.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/host_buffer.h"

namespace gaccd {

class CpuContext;

class PackedWeights {
 public:
  explicit PackedWeights(const CpuContext& context) : context_(context) {}

  // The packed copy of the weight at `plain` (whose address must not change). Undefined until
  // Repack(). kOs without memory for it; throws dnnl::error, which Matmul::Prepare() catches.
  Result<dnnl::memory> Get(const float* plain, const dnnl::memory::desc& plain_desc,
                           const dnnl::memory::desc& packed_desc);

  // Copies every weight again. Call after the parameters changed, before the next product.
  // kInternal if oneDNN fails.
  Status Repack();
  // The values before `end` are final until the next Repack(): packs them now, from the caches;
  // Repack() packs the rest.
  void RepackUpTo(const float* end);

  [[nodiscard]] std::int64_t bytes() const;

 private:
  enum class Packing : std::uint8_t { kReorder, kTransposed, kBf16, kBf16Transposed };
  static Packing PackingOf(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed);

  struct Entry {
    HostBuffer storage;
    dnnl::memory plain;
    dnnl::memory packed;
    Packing packing = Packing::kReorder;
    std::int64_t stored_rows = 0;  // rows of `plain` in memory, row-major
    std::int64_t stored_columns = 0;
    std::int64_t done = 0;  // number of stored rows packed by RepackUpTo()
    dnnl::reorder reorder;  // not set for our own packings
    std::vector<dnnl_exec_arg_t> args;
  };

  static void PackRows(Entry& entry, std::int64_t last);
  Status Reorder(const Entry& entry);

  const CpuContext& context_;
  std::vector<Entry> entries_;
};

}  // namespace gaccd
