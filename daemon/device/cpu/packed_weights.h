// PackedWeights: copies of weights in the blocked layout that is fastest for oneDNN's products,
// updated once per update, and rounded to bf16 if that is the type of the layout. Products of the
// same weight with different micro-batch sizes share a copy if oneDNN uses the same layout. Used by
// one thread.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/result.h"

namespace gaccd {

class CpuContext;

class PackedWeights {
 public:
  explicit PackedWeights(const CpuContext& context) : context_(context) {}

  // The packed copy of the weight at `plain` (whose address must not change), without memory until
  // Allocate() or Repack(). Throws dnnl::error, which callers catch.
  dnnl::memory Get(const float* plain, const dnnl::memory::desc& plain_desc,
                   const dnnl::memory::desc& packed_desc);

  // Memory for the copies that have none: together, as huge pages are longer than most weights.
  // Fails if there is too little.
  Status Allocate();
  // Copies every weight again. Call after the parameters changed, before the next product. As
  // Allocate(); kInternal if oneDNN fails.
  Status Repack();
  // The values before `end` are final until the next Repack(): packs them now, from the caches;
  // Repack() packs the rest.
  void RepackUpTo(const float* end);

  [[nodiscard]] std::int64_t bytes() const;

 private:
  enum class Packing : std::uint8_t { kReorder, kTransposed, kBf16, kBf16Transposed };
  static Packing SelectPacking(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed);

  struct Entry {
    dnnl::memory plain;
    dnnl::memory packed;
    Packing packing = Packing::kReorder;
    std::int64_t stored_rows = 0;  // rows of `plain` in memory, row-major
    std::int64_t stored_columns = 0;
    std::int64_t done = 0;  // number of stored rows packed by RepackUpTo()
    dnnl::reorder reorder;  // not set for our own packings
    std::vector<dnnl_exec_arg_t> args;
  };

  static std::size_t AlignedBytes(const Entry& entry);
  static void PackRows(Entry& entry, std::int64_t last);
  Status Reorder(const Entry& entry);

  const CpuContext& context_;
  std::vector<Entry> entries_;
  std::vector<HostBuffer> storage_;
};

// The packed copy of a weight that a prepared product reads: that of a parameter, which the
// context keeps, or of a computed weight, which Run() packs into scratch memory.
class PackedWeight {
 public:
  PackedWeight() = default;
  // parameter: null for a computed weight. As PackedWeights::Get().
  static PackedWeight Make(CpuContext& context, const float* parameter,
                           const dnnl::memory::desc& plain, const dnnl::memory::desc& packed);

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

// Packing of a weight into oneDNN's blocked layouts, which oneDNN does too slowly: on one AVX-512
// core, [512, 784] takes 99 us with oneDNN's reorder, 31 us here. It is done once per update, so it
// determines from how many micro-steps on packing pays off.

// weight [n, k], row-major, n a multiple of 64 and k of 16. packed is oneDNN's layout BA16a64b of
// the matrix [k, n]: element (i, j) at ((j / 64) * (k / 16) + i / 16) * 1024 + (i % 16) * 64 + j
// % 64.
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed);

// For bf16 products, with rounding to nearest, ties to even: packs the matrix B [k, n], n a
// multiple of 64 and k of 16; f32, row-major, or stored as its transpose [n, k]. packed is oneDNN's
// layout BA16a64b2a: with K = k rounded up to 32, element (i, j) at ((j / 64) * (K / 32) + i / 32)
// * 2048 + (i % 32 / 2) * 128 + (j % 64) * 2 + i % 2; rows from k on are 0. Packs only rows [first,
// last) of the weight as stored; first is a multiple of 64, as is last, unless it is the end.
void PackBf16(const float* weight, bool transposed, std::int64_t k, std::int64_t n,
              std::int64_t first, std::int64_t last, std::uint16_t* packed);

}  // namespace gaccd
