#include "daemon/device/cpu/packed_weights.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/pack_bf16.h"
#include "daemon/device/cpu/pack_transposed.h"

namespace gaccd {

// Our own packings do whole blocks only.
PackedWeights::Packing PackedWeights::PackingOf(const dnnl::memory::desc& plain,
                                                const dnnl::memory::desc& packed) {
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;
  const auto dims = plain.dims();
  if (dims[0] % 16 != 0 || dims[1] % 64 != 0) return Packing::kReorder;
  const bool transposed = plain == Desc(dims, Type::f32, Tag::ba);
  if (packed == Desc(dims, Type::bf16, Tag::BA16a64b2a)) {
    return transposed ? Packing::kBf16Transposed : Packing::kBf16;
  }
  const bool blocks = packed == Desc(dims, Type::f32, Tag::BA16a64b);
  return transposed && blocks ? Packing::kTransposed : Packing::kReorder;
}

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
  entry.packing = PackingOf(plain_desc, packed_desc);
  entry.rows = plain_desc.dims()[0];
  entry.columns = plain_desc.dims()[1];
  if (entry.packing == Packing::kReorder) {
    entry.reorder = dnnl::reorder(entry.plain, entry.packed);
    entry.args = {{DNNL_ARG_FROM, entry.plain.get()}, {DNNL_ARG_TO, entry.packed.get()}};
  }
  entries_.push_back(std::move(entry));
  return entries_.back().packed;
}

Status PackedWeights::Repack() {
  for (const Entry& entry : entries_) GACCD_RETURN_IF_ERROR(Pack(entry));
  return Status::Ok();
}

Status PackedWeights::Pack(const Entry& entry) {
  const auto* plain = static_cast<const float*>(entry.plain.get_data_handle());
  void* packed = entry.packed.get_data_handle();
  switch (entry.packing) {
    case Packing::kTransposed:
      PackTransposed(plain, entry.columns, entry.rows, static_cast<float*>(packed));
      return Status::Ok();
    case Packing::kBf16:
    case Packing::kBf16Transposed:
      PackBf16(plain, entry.packing == Packing::kBf16Transposed, entry.rows, entry.columns,
               static_cast<std::uint16_t*>(packed));
      return Status::Ok();
    case Packing::kReorder:
      break;
  }
  const dnnl_status_t status =
      dnnl_primitive_execute(entry.reorder.get(), context_.stream().get(),
                             static_cast<int>(entry.args.size()), entry.args.data());
  if (status == dnnl_success) return Status::Ok();
  return {ErrorKind::kInternal, StrCat("oneDNN packing: dnnl_status_t ", static_cast<int>(status))};
}

std::int64_t PackedWeights::bytes() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += static_cast<std::int64_t>(entry.storage.bytes());
  return sum;
}

}  // namespace gaccd
