#include "daemon/device/cpu/packed_weights.h"

#include <utility>

#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn_compat.h"

namespace gaccd {
namespace {

// rows of a stored weight that our packings process at once
constexpr std::int64_t kPackedRows = 64;
constexpr std::size_t kPackedAlignment = 64;

}  // namespace

// Our own packings only support whole blocks.
PackedWeights::Packing PackedWeights::SelectPacking(const dnnl::memory::desc& plain,
                                                    const dnnl::memory::desc& packed) {
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;
  const auto dims = Dimensions(plain);
  if (dims.size() != 2) return Packing::kReorder;
  if (dims[0] % 16 != 0 || dims[1] % 64 != 0) return Packing::kReorder;
  const bool transposed = plain == Desc(dims, Type::f32, Tag::ba);
  if (packed == Desc(dims, Type::bf16, Tag::BA16a64b2a)) {
    return transposed ? Packing::kBf16Transposed : Packing::kBf16;
  }
  const bool blocks = packed == Desc(dims, Type::f32, Tag::BA16a64b);
  return transposed && blocks ? Packing::kTransposed : Packing::kReorder;
}

dnnl::memory PackedWeights::Get(const float* plain, const dnnl::memory::desc& plain_desc,
                                const dnnl::memory::desc& packed_desc) {
  for (const Entry& entry : entries_) {
    if (entry.plain.get_data_handle() == plain && entry.plain.get_desc() == plain_desc &&
        entry.packed.get_desc() == packed_desc) {
      return entry.packed;
    }
  }
  Entry entry;
  // oneDNN takes both sides of a reorder as mutable; it only reads the source.
  entry.plain = dnnl::memory(plain_desc, context_.engine(), const_cast<float*>(plain));
  entry.packed = dnnl::memory(packed_desc, context_.engine(), nullptr);
  entry.packing = SelectPacking(plain_desc, packed_desc);
  const bool transposed =
      entry.packing == Packing::kTransposed || entry.packing == Packing::kBf16Transposed;
  entry.stored_rows = Dimensions(plain_desc)[transposed ? 1 : 0];
  entry.stored_columns = Dimensions(plain_desc)[transposed ? 0 : 1];
  if (entry.packing == Packing::kReorder) {
    entry.reorder = dnnl::reorder(entry.plain, entry.packed);
    entry.args = {{DNNL_ARG_FROM, entry.plain.get()}, {DNNL_ARG_TO, entry.packed.get()}};
  }
  entries_.push_back(std::move(entry));
  return entries_.back().packed;
}

std::size_t PackedWeights::AlignedBytes(const Entry& entry) {
  return (entry.packed.get_desc().get_size() + kPackedAlignment - 1) / kPackedAlignment *
         kPackedAlignment;
}

Status PackedWeights::Allocate() {
  const auto is_new = [](const Entry& entry) { return entry.packed.get_data_handle() == nullptr; };
  std::size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += is_new(entry) ? AlignedBytes(entry) : 0;
  if (bytes == 0) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Allocate(bytes, "packed weights"));
  std::byte* at = buffer.data();
  for (Entry& entry : entries_) {
    if (!is_new(entry)) continue;
    entry.packed.set_data_handle(at);
    at += AlignedBytes(entry);
  }
  storage_.push_back(std::move(buffer));
  return Status::Ok();
}

Status PackedWeights::Repack() {
  GACCD_RETURN_IF_ERROR(Allocate());
  for (Entry& entry : entries_) {
    if (entry.packing == Packing::kReorder) {
      GACCD_RETURN_IF_ERROR(Reorder(entry));
    } else {
      PackRows(entry, entry.stored_rows);
      entry.done = 0;
    }
  }
  return Status::Ok();
}

void PackedWeights::RepackUpTo(const float* end) {
  for (Entry& entry : entries_) {
    const std::int64_t ready = end - static_cast<const float*>(entry.plain.get_data_handle());
    if (entry.packing == Packing::kReorder || ready <= 0) continue;
    if (entry.packed.get_data_handle() == nullptr) continue;
    const std::int64_t rows = ready / entry.stored_columns;
    PackRows(entry,
             rows < entry.stored_rows ? rows / kPackedRows * kPackedRows : entry.stored_rows);
  }
}

// Packs stored rows from entry.done to `last`.
void PackedWeights::PackRows(Entry& entry, std::int64_t last) {
  const std::int64_t first = std::exchange(entry.done, last);
  if (first == last) return;
  const auto* plain = static_cast<const float*>(entry.plain.get_data_handle());
  void* const packed = entry.packed.get_data_handle();
  switch (entry.packing) {
    case Packing::kTransposed: {
      const std::int64_t done = first * entry.stored_columns;
      PackTransposed(plain + done, last - first, entry.stored_columns,
                     static_cast<float*>(packed) + done);
      return;
    }
    case Packing::kBf16:
      PackBf16(plain, /*transposed=*/false, entry.stored_rows, entry.stored_columns, first, last,
               static_cast<std::uint16_t*>(packed));
      return;
    case Packing::kBf16Transposed:
      PackBf16(plain, /*transposed=*/true, entry.stored_columns, entry.stored_rows, first, last,
               static_cast<std::uint16_t*>(packed));
      return;
    case Packing::kReorder:
      return;
  }
}

Status PackedWeights::Reorder(const Entry& entry) {
  return DnnlStatus(dnnl_primitive_execute(entry.reorder.get(), context_.stream().get(),
                                           static_cast<int>(entry.args.size()), entry.args.data()),
                    "oneDNN packing");
}

std::int64_t PackedWeights::bytes() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += static_cast<std::int64_t>(AlignedBytes(entry));
  return sum;
}

PackedWeight PackedWeight::Make(CpuContext& context, const float* parameter,
                                const dnnl::memory::desc& plain, const dnnl::memory::desc& packed) {
  PackedWeight made;
  if (parameter != nullptr) {
    made.packed_ = context.packed_weights().Get(parameter, plain, packed);
    return made;
  }
  made.stream_ = context.stream();
  made.plain_ = dnnl::memory(plain, context.engine(), nullptr);
  made.packed_ = dnnl::memory(packed, context.engine(), nullptr);
  made.reorder_ = dnnl::reorder(made.plain_, made.packed_);
  made.args_ = {{DNNL_ARG_FROM, made.plain_.get()}, {DNNL_ARG_TO, made.packed_.get()}};
  made.scratch_bytes_ = static_cast<std::int64_t>((packed.get_size() + kPackedAlignment - 1) /
                                                  kPackedAlignment * kPackedAlignment);
  return made;
}

void PackedWeight::Bind(const float* weight, void* scratch) {
  if (!plain_) return;
  plain_.set_data_handle(const_cast<float*>(weight));
  packed_.set_data_handle(scratch);
}

Status PackedWeight::Run() {
  if (!plain_) return Status::Ok();
  return DnnlStatus(dnnl_primitive_execute(reorder_.get(), stream_.get(),
                                           static_cast<int>(args_.size()), args_.data()),
                    "oneDNN packing");
}

}  // namespace gaccd
