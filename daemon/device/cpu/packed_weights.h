// PackedWeights: copies of weights in the blocked layout that is fastest for oneDNN's products,
// updated once per update, and rounded to bf16 if that is the type of the layout. Products of the
// same weight with different micro-batch sizes share a copy if oneDNN uses the same layout. Used by
// one thread.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/host_buffer.h"
#include "collectives/base/result.h"

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
  static Packing SelectPacking(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed);

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

// The packed copy of a weight that a prepared product reads: that of a parameter, which the
// context keeps, or of a computed weight, which Run() packs into scratch memory.
class PackedWeight {
 public:
  PackedWeight() = default;
  // parameter: null for a computed weight. As PackedWeights::Get().
  static Result<PackedWeight> Make(CpuContext& context, const float* parameter,
                                   const dnnl::memory::desc& plain,
                                   const dnnl::memory::desc& packed);

  [[nodiscard]] const dnnl::memory& memory() const { return packed_; }
  // A multiple of 64.
  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }
  void Bind(const float* weight, void* scratch);
  // Before a product. kInternal when oneDNN fails. REQUIRES: Bind().
  Status Run();

 private:
  dnnl::memory packed_;
  // For a computed weight.
  dnnl::memory plain_;
  dnnl::reorder reorder_;
  dnnl::stream stream_;
  std::vector<dnnl_exec_arg_t> args_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace gaccd
