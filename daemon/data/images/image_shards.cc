#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/data/images/image_files.h"

namespace gaccd {
namespace {

struct FreeArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using ArchiveReader = std::unique_ptr<archive, FreeArchive>;

// libarchive would only report an unknown format.
std::string_view DetectCompression(std::string_view start) {
  using namespace std::string_view_literals;
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kKinds = {{
      {"\x1f\x8b"sv, "gzip"},
      {"BZh"sv, "bzip2"},
      {"\xfd"
       "7zXZ\0"sv,
       "xz"},
      {"\x28\xb5\x2f\xfd"sv, "zstd"},
      {"\x04\x22\x4d\x18"sv, "lz4"},
  }};
  for (const auto& [magic, name] : kKinds) {
    if (start.starts_with(magic)) return name;
  }
  return "";
}

struct MemberName {
  std::string key;
  std::string kind;  // after the first dot, in lower case
};

MemberName ParseMemberName(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', base);
  if (dot == std::string_view::npos || dot == base) return {};
  MemberName name{std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
  std::ranges::transform(name.kind, name.kind.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

bool IsImage(std::string_view kind) {
  return kind == "jpg" || kind == "jpeg" || kind == "png" || kind == "webp";
}

// Whether the last extension is that of an image or label, but earlier dots in the name end its
// key.
bool IsBehindDot(std::string_view kind) {
  const std::size_t dot = kind.rfind('.');
  return dot != std::string_view::npos &&
         (IsImage(kind.substr(dot + 1)) || kind.substr(dot + 1) == "cls");
}

// The members of one key so far.
struct KeySample {
  ImageFile image;  // path is empty: none yet
  std::optional<std::string> label;
  std::string label_path;
};

class Indexer {
 public:
  Indexer(const std::string& name, std::span<const std::byte> tar, const TickFunction& tick)
      : name_(name), tar_(tar), ticks_(tick), reader_(archive_read_new()) {}

  // Groups all members by key.
  Status Read() {
    archive_read_support_filter_none(reader_.get());
    archive_read_support_format_tar(reader_.get());
    // Also reads archives after an end mark, instead of silently ignoring them.
    archive_read_set_options(reader_.get(), "read_concatenated_archives");
    if (archive_read_open_memory(reader_.get(), tar_.data(), tar_.size()) != ARCHIVE_OK) {
      return Broken();
    }
    archive_entry* entry = nullptr;
    std::uint64_t before = 0;
    while (true) {
      const int found = archive_read_next_header(reader_.get(), &entry);
      if (found == ARCHIVE_EOF) return CheckEnd();
      if (found != ARCHIVE_OK && found != ARCHIVE_WARN) return Broken();
      GACCD_RETURN_IF_ERROR(Add(entry));
      const auto at = static_cast<std::uint64_t>(archive_read_header_position(reader_.get()));
      GACCD_RETURN_IF_ERROR(ticks_.Add(at - std::exchange(before, at)));
    }
  }

  Result<std::vector<ImageFile>> Finish(std::int64_t classes, std::vector<DamagedLabel>& damaged) {
    std::vector<ImageFile> images;
    for (const auto& [key, path] : behind_dot_) {
      if (samples_.contains(key)) continue;
      return Bad(StrCat("expected an image of the key '", key, "', as ", key, ".jpg, found ", path,
                        ": a key ends at the first dot of a name, so samples may not have one"));
    }
    for (const std::string& key : order_) {
      KeySample& sample = samples_.at(key);
      if (sample.image.path.empty()) {
        return Bad(StrCat("expected an image with the key '", key,
                          "' (.jpg, .jpeg, .png or .webp), found ", sample.label_path, " alone"));
      }
      const auto label = ParseLabel(sample, classes);
      if (!label.ok()) damaged.push_back({std::ssize(images), label.status()});
      sample.image.label = label.ok() ? *label : 0;
      images.push_back(std::move(sample.image));
    }
    if (images.empty()) return Bad("expected images in it, found none");
    return images;
  }

 private:
  [[nodiscard]] Status Bad(const std::string& why) const {
    return {ErrorKind::kData, StrCat(name_, ": ", why)};
  }
  [[nodiscard]] Status Broken() const {
    const char* why = archive_error_string(reader_.get());
    return Bad(StrCat("damaged tar file: ", why == nullptr ? "unknown" : why));
  }
  // A file truncated between two members has no end mark.
  [[nodiscard]] Status CheckEnd() const {
    constexpr std::size_t kBlock = 512;
    const auto is_zero = [](std::byte value) { return value == std::byte{0}; };
    if (tar_.size() >= kBlock && std::ranges::all_of(tar_.last(kBlock), is_zero)) {
      return Status::Ok();
    }
    return Bad(StrCat("truncated tar file: expected a block of zeros at its end, found ",
                      tar_.size(), " bytes without"));
  }

  Status Add(archive_entry* entry) {
    const char* text = archive_entry_pathname(entry);
    if (text == nullptr) text = archive_entry_pathname_utf8(entry);
    if (text == nullptr) return Bad("a member has a name that is no text");
    const std::string path = text;
    const MemberName name = ParseMemberName(path);
    if (IsBehindDot(name.kind)) behind_dot_.try_emplace(name.key, path);
    if (!IsImage(name.kind) && name.kind != "cls") return Status::Ok();
    if (archive_entry_filetype(entry) == AE_IFDIR) return Status::Ok();
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr ||
        archive_entry_sparse_count(entry) > 0) {
      return Bad(StrCat(path, ": expected a plain file, found a link or a sparse file"));
    }
    GACCD_ASSIGN_OR_RETURN(const std::span<const std::byte> content,
                           ReadContent(archive_entry_size(entry), path));
    const auto [at, is_new] = samples_.try_emplace(name.key);
    if (is_new) order_.push_back(name.key);
    KeySample& sample = at->second;
    if (name.kind == "cls") {
      if (sample.label) return Twice("one .cls", name.key, sample.label_path, path);
      sample.label.emplace(reinterpret_cast<const char*>(content.data()),
                           std::min<std::size_t>(content.size(), 64));
      sample.label_path = path;
      return Status::Ok();
    }
    if (!sample.image.path.empty()) {
      return Twice("one image", name.key, sample.image.path, path);
    }
    sample.image = {.path = path,
                    .offset = content.empty() ? 0 : content.data() - tar_.data(),
                    .bytes = std::ssize(content)};
    return Status::Ok();
  }

  [[nodiscard]] Status Twice(std::string_view what, const std::string& key,
                             const std::string& first, const std::string& second) const {
    return Bad(
        StrCat("expected ", what, " with the key '", key, "', found ", first, " and ", second));
  }

  // libarchive returns pointers into the memory it reads, so a plain member is one range of it.
  Result<std::span<const std::byte>> ReadContent(la_int64_t bytes, const std::string& path) {
    const void* data = nullptr;
    std::size_t found = 0;
    la_int64_t offset = 0;
    if (bytes == 0) return std::span<const std::byte>();
    if (archive_read_data_block(reader_.get(), &data, &found, &offset) != ARCHIVE_OK) {
      return Broken().WithContext(path);
    }
    const auto* begin = static_cast<const std::byte*>(data);
    const bool inside = begin >= tar_.data() && begin + found <= tar_.data() + tar_.size();
    if (inside && offset == 0 && static_cast<la_int64_t>(found) == bytes) {
      return std::span(begin, found);
    }
    return Bad(StrCat(path, ": expected ", bytes, " bytes in a row, found ", found));
  }

  [[nodiscard]] Result<std::int32_t> ParseLabel(const KeySample& sample,
                                                std::int64_t classes) const {
    if (!sample.label) {
      return Bad(
          StrCat(sample.image.path, ": expected a label, a .cls with the same key, found none"));
    }
    std::string_view text = *sample.label;
    const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    const auto label = ToNumber<std::int32_t>(text);
    if (label && *label >= 0 && *label < classes) return *label;
    return Bad(
        StrCat(sample.label_path, ": expected a class in [0, ", classes, "), found '", text, "'"));
  }

  const std::string& name_;
  std::span<const std::byte> tar_;
  Ticks ticks_;
  ArchiveReader reader_;
  std::map<std::string, KeySample> samples_;
  std::vector<std::string> order_;  // keys in order of appearance
  std::map<std::string, std::string>
      behind_dot_;  // by key, the first member for which IsBehindDot()
};

}  // namespace

bool IsShards(const std::string& path) {
  struct stat info {};
  return IsPattern(path) || (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode));
}

Result<std::vector<ImageFile>> IndexShard(const std::string& name, std::span<const std::byte> tar,
                                          std::int64_t classes, std::vector<DamagedLabel>& damaged,
                                          const TickFunction& tick) {
  const std::string_view start(reinterpret_cast<const char*>(tar.data()),
                               std::min<std::size_t>(tar.size(), 8));
  if (const std::string_view found = DetectCompression(start); !found.empty()) {
    return Status(ErrorKind::kData,
                  StrCat(name, ": expected a tar file that is not compressed, found ", found));
  }
  Indexer indexer(name, tar, tick);
  GACCD_RETURN_IF_ERROR(indexer.Read());
  return indexer.Finish(classes, damaged);
}

Result<ImageShards> OpenShards(const std::vector<std::string>& paths, std::int64_t classes,
                               const TickFunction& tick) {
  ImageShards all;
  for (const std::string& path : paths) {
    GACCD_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
    std::vector<DamagedLabel> damaged;
    GACCD_ASSIGN_OR_RETURN(std::vector<ImageFile> images,
                           IndexShard(path, file->bytes(), classes, damaged, tick));
    for (DamagedLabel& label : damaged) {
      all.damaged.push_back({label.sample + std::ssize(all.images), std::move(label.why)});
    }
    for (ImageFile& image : images) {
      image.shard = static_cast<std::int32_t>(all.shards.size());
      all.images.push_back(std::move(image));
    }
    all.shards.push_back({path, std::move(file)});
  }
  return all;
}

}  // namespace gaccd
