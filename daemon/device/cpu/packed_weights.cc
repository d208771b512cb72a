#include "daemon/device/cpu/packed_weights.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/pack_transposed.h"

namespace gaccd {
namespace {

// What PackTransposed() can do: [k, n] read transposed, whole blocks only.
bool IsTransposedToBlocks(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed) {
  using Tag = dnnl::memory::format_tag;
  const auto dims = plain.dims();
  return dims[0] % 16 == 0 && dims[1] % 64 == 0 &&
         plain == dnnl::memory::desc(dims, plain.data_type(), Tag::ba) &&
         packed == dnnl::memory::desc(dims, plain.data_type(), Tag::BA16a64b);
}

}  // namespace

Result<dnnl::memory> PackedWeights::Get(const float* plain, const dnnl::memory::desc& plain_desc,
                                        const dnnl::memory::desc& packed_desc) {
  for (const Entry& entry : entries_) {
    if (entry.plain.get_data_handle() == plain && entry.plain.get_desc() == plain_desc &&
        entry.packed.get_desc() == packed_desc) {
      return entry.packed;
    }
  }
  Entry entry;
  GACCD_ASSIGN_OR_RETURN(entry.storage,
                         HostBuffer::Allocate(packed_desc.get_size(), "packed weights"));
  // oneDNN takes both sides of a reorder as mutable; it only reads the source.
  entry.plain = dnnl::memory(plain_desc, context_.engine(), const_cast<float*>(plain));
  entry.packed = dnnl::memory(packed_desc, context_.engine(), entry.storage.data());
  entry.transposed = IsTransposedToBlocks(plain_desc, packed_desc);
  entry.rows = plain_desc.dims()[0];
  entry.columns = plain_desc.dims()[1];
  if (!entry.transposed) {
    entry.reorder = dnnl::reorder(entry.plain, entry.packed);
    entry.args = {{DNNL_ARG_FROM, entry.plain.get()}, {DNNL_ARG_TO, entry.packed.get()}};
  }
  entries_.push_back(std::move(entry));
  return entries_.back().packed;
}

Status PackedWeights::Repack() {
  for (const Entry& entry : entries_) {
    if (entry.transposed) {
      PackTransposed(static_cast<const float*>(entry.plain.get_data_handle()), entry.columns,
                     entry.rows, static_cast<float*>(entry.packed.get_data_handle()));
      continue;
    }
    const dnnl_status_t status =
        dnnl_primitive_execute(entry.reorder.get(), context_.stream().get(),
                               static_cast<int>(entry.args.size()), entry.args.data());
    if (status != dnnl_success) {
      return {ErrorKind::kInternal,
              StrCat("oneDNN packing: dnnl_status_t ", static_cast<int>(status))};
    }
  }
  return Status::Ok();
}

std::int64_t PackedWeights::bytes() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += static_cast<std::int64_t>(entry.storage.bytes());
  return sum;
}

}  // namespace gaccd
