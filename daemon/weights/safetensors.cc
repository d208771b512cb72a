#include "daemon/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/sample.h"
#include "daemon/weights/safetensors_header.h"

namespace gaccd {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{16} << 20;

Status BadData(const std::string& name, std::string_view what) {
  return {ErrorKind::kData, StrCat(name, ": ", what)};
}

// Reads from a file or memory. Fills `out` from `offset` on. REQUIRES: the range is within the
// size.
using ReadAt = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

constexpr std::string_view kFloat = "F32";
constexpr std::string_view kBf16 = "BF16";
constexpr std::string_view kFp16 = "F16";
constexpr std::string_view kLong = "I64";

bool IsCount(std::string_view name, std::span<const std::int64_t> shape) {
  return shape.empty() && name.ends_with("num_batches_tracked");
}

// The size of an element; 0: unknown type.
std::int64_t ElementBytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::int64_t> kTypes[] = {
      {kFloat, 4}, {"F64", 8}, {kFp16, 2}, {kBf16, 2},     {kLong, 8},
      {"I32", 4},  {"I16", 2}, {"I8", 1},  {"U8", 1},      {"BOOL", 1},
      {"U16", 2},  {"U32", 4}, {"U64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto* const found = std::ranges::find(kTypes, dtype, [](const auto& t) { return t.first; });
  return found == std::end(kTypes) ? 0 : found->second;
}

// The exact values of tensors in 16 bits. REQUIRES: `from` has two bytes for each of `to`.
template <typename T>
void Widen(std::span<const std::uint16_t> from, std::span<float> to) {
  std::ranges::transform(from, to.begin(), [](std::uint16_t bits) { return ToFloat(T{bits}); });
}

// Fills `values` from `offset` on, of the given dtype.
Status ReadValues(const ReadAt& read_at, std::uint64_t offset, std::string_view dtype,
                  std::span<float> values) {
  if (dtype == kFloat) return read_at(offset, std::as_writable_bytes(values));
  std::vector<std::uint16_t> narrow(values.size());
  GACCD_RETURN_IF_ERROR(read_at(offset, std::as_writable_bytes(std::span(narrow))));
  dtype == kBf16 ? Widen<Bf16>(narrow, values) : Widen<Fp16>(narrow, values);
  return Status::Ok();
}

// Checks dtype, size and offsets of one entry.
Status CheckEntry(const std::string& name, const SafetensorsEntry& entry) {
  std::int64_t bytes = ElementBytes(entry.dtype);
  const bool known = bytes != 0;
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return BadData(name, StrCat("tensor '", entry.name, "': the size of shape ",
                                  ToString(entry.shape), " does not fit 63 bits"));
    }
  }
  if (entry.begin > entry.end || (known && entry.end - entry.begin != bytes)) {
    return BadData(name, StrCat("tensor '", entry.name, "': expected ", bytes, " bytes for shape ",
                                ToString(entry.shape), ", found data_offsets [", entry.begin, ", ",
                                entry.end, "]"));
  }
  return Status::Ok();
}

// Sorts the entries by offset; each must begin at the end of the previous one, and the last must
// end with the file.
Status CheckLayout(const std::string& name, std::int64_t data_bytes,
                   std::vector<SafetensorsEntry>& entries) {
  for (const SafetensorsEntry& entry : entries) GACCD_RETURN_IF_ERROR(CheckEntry(name, entry));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::int64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      return BadData(name, StrCat("tensor '", entry.name, "': expected it to begin at byte ",
                                  covered, ", where the one before ends, found ", entry.begin,
                                  entry.begin < covered ? " (they overlap)" : " (a hole)"));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return BadData(
        name, StrCat("the tensors take ", covered, " bytes after the header, found ", data_bytes));
  }
  return Status::Ok();
}

// Advice for files that are commonly mistaken for safetensors.
std::string_view HintFor(std::uint64_t first_bytes) {
  constexpr std::uint64_t kZip = 0x04034b50;  // "PK\3\4": torch.save, numpy.savez
  constexpr std::uint64_t kPickle = 0x80;     // torch.save before version 1.6
  if ((first_bytes & 0xffffffffU) != kZip && (first_bytes & 0xffU) != kPickle) return {};
  return "; a .pt or .bin of PyTorch becomes one in Python: safetensors.torch.save_file("
         "torch.load('OLD', map_location='cpu', weights_only=True), 'NEW.safetensors')";
}

// data_start: set to the offset of the values.
Result<SafetensorsHeader> DecodeHeader(const std::string& name, std::uint64_t size,
                                       const ReadAt& read_at, std::uint64_t* data_start) {
  constexpr std::string_view kNone =
      "not a safetensors file: expected the length of a header in 8 bytes, then '{', found ";
  if (size < kLengthBytes) return BadData(name, StrCat(kNone, size, " bytes"));
  std::uint64_t length = 0;
  GACCD_RETURN_IF_ERROR(read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  char first = '{';
  if (size > kLengthBytes) {
    GACCD_RETURN_IF_ERROR(read_at(kLengthBytes, std::as_writable_bytes(std::span(&first, 1))));
  }
  if (first != '{') {
    return BadData(name, StrCat(kNone, "the length ", length, " and '", Printable({&first, 1}), "'",
                                HintFor(length)));
  }
  if (length > kMaxHeaderBytes) {
    return BadData(
        name, StrCat("expected a header of at most ", kMaxHeaderBytes, " bytes, found ", length));
  }
  if (length > size - kLengthBytes) {
    return BadData(name, StrCat("truncated: expected a header of ", length, " bytes, found ",
                                size - kLengthBytes));
  }
  std::string text(length, '\0');
  GACCD_RETURN_IF_ERROR(read_at(kLengthBytes, std::as_writable_bytes(std::span(text))));
  auto header = ParseSafetensorsHeader(text);
  if (!header.ok()) return header.status().WithContext(name);
  *data_start = kLengthBytes + length;
  return header;
}

Result<SafetensorsFile> Decode(const std::string& name, std::uint64_t size, const ReadAt& read_at) {
  std::uint64_t data_start = 0;
  GACCD_ASSIGN_OR_RETURN(SafetensorsHeader header, DecodeHeader(name, size, read_at, &data_start));
  GACCD_RETURN_IF_ERROR(
      CheckLayout(name, static_cast<std::int64_t>(size - data_start), header.entries));

  SafetensorsFile file;
  file.metadata = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.entries) {
    const std::uint64_t begin = data_start + static_cast<std::uint64_t>(entry.begin);
    if (entry.dtype == kLong && IsCount(entry.name, entry.shape)) {
      std::int64_t count = 0;
      GACCD_RETURN_IF_ERROR(read_at(begin, std::as_writable_bytes(std::span(&count, 1))));
      if (count < 0 || count > kLargestExactId) {
        return BadData(name, StrCat("tensor '", entry.name, "': expected a count from 0 to ",
                                    kLargestExactId, ", found ", count));
      }
      file.tensors.push_back({std::move(entry.name), {}, {static_cast<float>(count)}});
      continue;
    }
    if (entry.dtype != kFloat && entry.dtype != kBf16 && entry.dtype != kFp16) {
      file.others.push_back({std::move(entry.name), std::move(entry.dtype)});
      continue;
    }
    NamedTensor& tensor = file.tensors.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.shape = std::move(entry.shape);
    tensor.values.resize(
        static_cast<std::size_t>((entry.end - entry.begin) / ElementBytes(entry.dtype)));
    GACCD_RETURN_IF_ERROR(ReadValues(read_at, begin, entry.dtype, tensor.values));
  }
  return file;
}

// Checks the tensors and makes the header to write.
Result<SafetensorsHeader> MakeHeader(std::span<const TensorView> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const auto wrong = [](std::string_view name, std::string_view what) {
    return Status(ErrorKind::kInternal, StrCat("cannot write tensor '", name, "': ", what));
  };
  SafetensorsHeader header;
  header.metadata = metadata;
  header.metadata["format"] = "pt";  // some readers require it
  std::set<std::string_view> names;
  std::int64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    if (tensor.name == "__metadata__" || !IsUtf8(tensor.name)) {
      return wrong(tensor.name, "expected a name in UTF-8 other than __metadata__");
    }
    if (!names.insert(tensor.name).second) return wrong(tensor.name, "the name appears twice");
    const Shape shape(tensor.shape.begin(), tensor.shape.end());
    GACCD_RETURN_IF_ERROR(CheckShape(shape, DType::kF32));
    if (Elements(shape) != static_cast<std::int64_t>(tensor.values.size())) {
      return wrong(tensor.name, StrCat("expected ", Elements(shape), " values for shape ",
                                       ToString(shape), ", found ", tensor.values.size()));
    }
    const std::string_view dtype = IsCount(tensor.name, shape) ? kLong : kFloat;
    const std::int64_t end = offset + std::ssize(tensor.values) * ElementBytes(dtype);
    header.entries.push_back({std::string(tensor.name), std::string(dtype), shape, offset, end});
    offset = end;
  }
  return header;
}

Status WriteTo(const std::string& target, std::string_view header,
               std::span<const TensorView> tensors, unsigned mode) {
  const std::uint64_t length = header.size();
  GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(target, mode));
  GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&length, 1))));
  GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(header))));
  for (const TensorView& tensor : tensors) {
    if (IsCount(tensor.name, tensor.shape)) {
      const float value = tensor.values[0];
      const bool known = value >= 0 && value <= static_cast<float>(kLargestExactId);
      const std::int64_t count = known ? static_cast<std::int64_t>(value) : kLargestExactId;
      GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(&count, 1))));
      continue;
    }
    GACCD_RETURN_IF_ERROR(file.Write(std::as_bytes(tensor.values)));
  }
  return file.Commit();
}

}  // namespace

Result<SafetensorsFile> DecodeSafetensors(const std::string& name,
                                          std::span<const std::byte> file) {
  return Decode(name, file.size(), [&](std::uint64_t offset, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
    return Status::Ok();
  });
}

Result<SafetensorsFile> ReadSafetensors(const std::string& path, Ticks* ticks) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  return Decode(path, file.size(), [&](std::uint64_t offset, std::span<std::byte> out) {
    return file.ReadAt(offset, out, ticks);
  });
}

Result<std::map<std::string, std::string>> ReadSafetensorsMetadata(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::uint64_t data_start = 0;
  GACCD_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      DecodeHeader(
          path, file.size(),
          [&](std::uint64_t offset, std::span<std::byte> out) { return file.ReadAt(offset, out); },
          &data_start));
  return std::move(header.metadata);
}

std::vector<TensorView> MakeViews(std::span<const NamedTensor> tensors) {
  std::vector<TensorView> views;
  for (const NamedTensor& tensor : tensors) {
    views.push_back({tensor.name, tensor.shape, tensor.values});
  }
  return views;
}

Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors, unsigned mode,
                        const std::map<std::string, std::string>& metadata) {
  GACCD_ASSIGN_OR_RETURN(const SafetensorsHeader header, MakeHeader(tensors, metadata));
  const std::string text = SafetensorsHeaderText(header);
  if (text.size() > kMaxHeaderBytes) {
    return {ErrorKind::kInternal, StrCat(path, ": expected a header of at most ", kMaxHeaderBytes,
                                         " bytes, found ", text.size())};
  }
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(path));
  Status written = WriteTo(target, text, tensors, mode);
  return target == path ? written : std::move(written).WithContext(path);
}

Status CheckWeightsFile(const std::string& path) {
  GACCD_RETURN_IF_ERROR(CheckOutputFile(path));
  return CheckReplaces(path, "{", "a safetensors file", kLengthBytes);
}

}  // namespace gaccd
