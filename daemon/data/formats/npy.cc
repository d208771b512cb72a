#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/mapped_file.h"

namespace gaccd {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMagicBytes = 8;  // magic and version
constexpr std::size_t kMaxHeaderBytes = 65536;
constexpr std::size_t kMaxDimensions = 32;  // NumPy's own limit
constexpr std::size_t kMaxShown = 40;       // bytes of the file quoted in a message

struct Header {
  std::string_view descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Parses the dictionary from left to right and keeps the first failure.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  // "expected X at byte N of the header, found Y"; empty after success.
  [[nodiscard]] const std::string& failure() const { return failure_; }

  std::optional<Header> Parse() {
    Header header;
    std::array<bool, 3> seen{};
    Expect('{');
    while (ok() && !Peek('}')) {
      ParseEntry(header, seen);
      if (!Peek('}')) Expect(',');
    }
    Expect('}');
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (ok() && text_.substr(at_) != "\n") Fail("the line end of the header");
    for (std::size_t i = 0; ok() && i < seen.size(); ++i) {
      if (!seen[i]) Fail(StrCat("the key '", kKeys[i], "' before"));
    }
    if (!ok()) return std::nullopt;
    return header;
  }

 private:
  static constexpr std::array<std::string_view, 3> kKeys = {"descr", "fortran_order", "shape"};

  [[nodiscard]] bool ok() const { return failure_.empty(); }

  void Fail(std::string_view expected) {
    if (!ok()) return;
    const std::string_view rest = text_.substr(at_, kMaxShown);
    failure_ = StrCat("expected ", expected, " at byte ", at_, " of the header, found ",
                      rest.empty() ? "its end" : StrCat("\"", Printable(rest), "\""));
  }

  [[nodiscard]] bool Peek(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() && text_[at_] == c;
  }

  void Expect(char c) {
    if (!ok()) return;
    if (Peek(c)) {
      ++at_;
    } else {
      Fail(StrCat("'", c, "'"));
    }
  }

  void ParseEntry(Header& header, std::array<bool, 3>& seen) {
    const std::size_t start = at_;
    const std::string_view key = ParseString();
    const auto found = std::find(kKeys.begin(), kKeys.end(), key);
    const auto number = static_cast<std::size_t>(found - kKeys.begin());
    if (ok() && (found == kKeys.end() || seen[number])) {
      at_ = start;
      Fail("'descr', 'fortran_order' and 'shape', each once,");
    }
    Expect(':');
    if (!ok()) return;
    seen[number] = true;
    if (number == 0) header.descr = ParseString();
    if (number == 1) header.fortran_order = ParseBool();
    if (number == 2) header.shape = ParseShape();
  }

  // In single or double quotes, without escapes.
  std::string_view ParseString() {
    const char quote = Peek('"') ? '"' : '\'';
    Expect(quote);
    const std::size_t start = at_;
    while (ok() && at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\') Fail("text without escapes");
      ++at_;
    }
    const std::string_view value = ok() ? text_.substr(start, at_ - start) : std::string_view();
    Expect(quote);
    return value;
  }

  bool ParseBool() {
    if (!Peek('T') && !Peek('F')) Fail("True or False");
    const std::string_view word = Peek('T') ? "True" : "False";
    if (ok() && text_.substr(at_, word.size()) != word) Fail("True or False");
    if (ok()) at_ += word.size();
    return word == "True";
  }

  // (), (3,), (3, 4), (3, 4,). As in Python, one number needs its comma.
  std::vector<std::int64_t> ParseShape() {
    std::vector<std::int64_t> shape;
    Expect('(');
    while (ok() && !Peek(')')) {
      shape.push_back(ParseNumber());
      if (shape.size() > kMaxDimensions) Fail(StrCat("at most ", kMaxDimensions, " dimensions"));
      if (shape.size() == 1 || !Peek(')')) Expect(',');
    }
    Expect(')');
    return shape;
  }

  std::int64_t ParseNumber() {
    std::int64_t value = 0;
    (void)Peek('0');  // skips spaces
    const std::size_t start = at_;
    while (ok() && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const std::int64_t digit = text_[at_] - '0';
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, digit, &value)) {
        at_ = start;
        Fail("a dimension that fits 63 bits");
        return 0;
      }
      ++at_;
    }
    if (at_ == start) Fail("a dimension");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string failure_;
};

// Python whose result can be read as features, labels and tokens; empty: none is known.
std::string ReadableArray(std::string_view descr, bool other_order) {
  if (other_order) return "array.astype(array.dtype.newbyteorder('<'))";
  const char kind = descr.size() > 1 ? descr[1] : '?';
  if (kind == 'U' || kind == 'S' || kind == 'O') {
    return "for labels numpy.unique(array, return_inverse=True)[1], for numbers "
           "array.astype('float32')";
  }
  if (kind == 'f') return "array.astype('float32')";
  if (kind == 'b') return "array.astype('uint8'), of targets that are no classes 'float32'";
  return "";
}

Result<StoredType> ParseDescr(const std::string& name, std::string_view descr) {
  constexpr std::pair<std::string_view, StoredType> kTypes[] = {
      {"u1", StoredType::kU8},  {"i1", StoredType::kI8},  {"u2", StoredType::kU16},
      {"i2", StoredType::kI16}, {"u4", StoredType::kU32}, {"i4", StoredType::kI32},
      {"u8", StoredType::kU64}, {"i8", StoredType::kI64}, {"f4", StoredType::kF32},
      {"f8", StoredType::kF64}};
  bool other_order = false;
  for (const auto& [known, type] : kTypes) {
    if (descr.empty() || descr.substr(1) != known) continue;
    if (descr[0] == '<' || (descr[0] == '|' && SizeOf(type) == 1)) return type;
    other_order = true;
  }
  const std::string readable = ReadableArray(descr, other_order);
  return Status(
      ErrorKind::kData,
      StrCat(name,
             ": expected an NPY element type of little-endian integers, '<f4' or '<f8', found '",
             descr.substr(0, kMaxShown), "'", readable.empty() ? "" : StrCat("; save ", readable)));
}

std::size_t LittleEndian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value * 256 + std::to_integer<std::size_t>(bytes[i - 1]);
  }
  return value;
}

// What to do with a file that is no array, by its first bytes; empty: not known.
std::string_view AdviceForOther(std::string_view file) {
  if (file.starts_with("PK")) {
    return "; this looks like an .npz file: save each array by itself with numpy.save";
  }
  const std::string_view start = file.substr(0, kMaxShown);
  const bool text = std::ranges::all_of(
      start, [](char c) { return (c >= ' ' && c <= '~') || c == '\t' || c == '\r' || c == '\n'; });
  return text ? "; this looks like text: a table of numbers with commas is data of csv {}" : "";
}

struct Parts {
  std::string_view header;
  std::span<const std::byte> data;
};

// Checks magic, version and header length.
Result<Parts> Split(const std::string& name, std::span<const std::byte> file) {
  const auto truncated = [&](std::size_t expected) {
    return Status(ErrorKind::kData, StrCat(name, ": truncated: expected at least ", expected,
                                           " bytes, found ", file.size()));
  };
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.substr(0, kMagic.size()) != kMagic.substr(0, text.size())) {
    return Status(ErrorKind::kData,
                  StrCat(name, ": not an NPY file: expected it to begin with \\x93NUMPY",
                         AdviceForOther(text)));
  }
  if (file.size() < kMagicBytes) return truncated(kMagicBytes);
  const int major = std::to_integer<int>(file[6]);
  const int minor = std::to_integer<int>(file[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return Status(ErrorKind::kData, StrCat(name, ": expected NPY version 1.0, 2.0 or 3.0, found ",
                                           major, ".", minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t start = kMagicBytes + length_bytes;
  if (file.size() < start) return truncated(start);
  const std::size_t length = LittleEndian(file.subspan(kMagicBytes, length_bytes));
  if (length > kMaxHeaderBytes) {
    return Status(ErrorKind::kData, StrCat(name, ": expected an NPY header of at most ",
                                           kMaxHeaderBytes, " bytes, found ", length));
  }
  if (file.size() - start < length) return truncated(start + length);
  return Parts{text.substr(start, length), file.subspan(start + length)};
}

}  // namespace

Result<Array> DecodeNpy(const std::string& name, std::span<const std::byte> file) {
  GACCD_ASSIGN_OR_RETURN(const Parts parts, Split(name, file));
  HeaderParser parser(parts.header);
  std::optional<Header> header = parser.Parse();
  if (!header) return Status(ErrorKind::kData, StrCat(name, ": ", parser.failure()));
  if (header->fortran_order) {
    return Status(ErrorKind::kData,
                  StrCat(name,
                         ": expected an array in C order (fortran_order False), found True; "
                         "save numpy.ascontiguousarray(array)"));
  }
  Array array;
  array.name = name;
  GACCD_ASSIGN_OR_RETURN(array.type, ParseDescr(name, header->descr));
  array.shape = std::move(header->shape);
  array.data = parts.data;
  GACCD_ASSIGN_OR_RETURN(const std::int64_t bytes, ArrayBytes(name, array.shape, array.type));
  if (array.data.size() != static_cast<std::size_t>(bytes)) {
    return Status(
        ErrorKind::kData,
        StrCat(name, ": expected ", bytes, " bytes after the header, for shape ",
               ToString(array.shape), ", ", Name(array.type), ", found ", array.data.size()));
  }
  return array;
}

Result<Array> LoadNpy(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  GACCD_ASSIGN_OR_RETURN(Array array, DecodeNpy(path, file->bytes()));
  array.owner = file;
  array.file = std::move(file);
  return array;
}

}  // namespace gaccd
