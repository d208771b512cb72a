// PackedWeights: weights copied into the blocked layout that oneDNN's products like best, and
// rounded to bf16 where that is the layout's type, once per update. Products of the same weight
// with different micro-batch sizes share a copy when oneDNN asks for the same layout. Used by one
// thread.
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

  // The packed copy of the weight at `plain` (which must stay there). It is empty until Repack().
  // kOs without memory for it; throws dnnl::error, which Matmul::Prepare() catches.
  Result<dnnl::memory> Get(const float* plain, const dnnl::memory::desc& plain_desc,
                           const dnnl::memory::desc& packed_desc);

  // Copies every weight anew. To be called after the parameters changed, before the next product.
  // kInternal when oneDNN fails.
  Status Repack();
  // The values before `end` are what the next Repack() is to find: what of them can be packed is
  // packed now, from the caches, and Repack() does the rest.
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
    std::int64_t stored_rows = 0;  // of `plain` in memory, row-major
    std::int64_t stored_columns = 0;
    std::int64_t done = 0;  // stored rows, by RepackUpTo()
    dnnl::reorder reorder;  // unless one of our own packings is used
    std::vector<dnnl_exec_arg_t> args;
  };

  static void PackRows(Entry& entry, std::int64_t last);
  Status Reorder(const Entry& entry);

  const CpuContext& context_;
  std::vector<Entry> entries_;
};

}  // namespace gaccd
