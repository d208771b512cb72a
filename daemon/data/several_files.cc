#include "daemon/data/several_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::vector<std::string*> ListPaths(SourceSpec& source) {
  std::vector<std::string*> paths;
  const auto add = [&paths](std::string& path) { paths.push_back(&path); };
  const auto add_if_given = [&paths](std::optional<std::string>& path) {
    if (path) paths.push_back(&*path);
  };
  std::visit(Overloaded{[&](IdxSpec& idx) {
                          add(idx.images);
                          add(idx.labels);
                        },
                        [&](NpySpec& npy) {
                          add(npy.features);
                          add(npy.targets);
                          add_if_given(npy.weights);
                        },
                        [&](TokensSpec& tokens) {
                          add(tokens.tokens);
                          for (auto* path : {&tokens.lengths, &tokens.segments, &tokens.labels,
                                             &tokens.weights}) {
                            add_if_given(*path);
                          }
                        },
                        [&](ArraysSpec& arrays) {
                          for (NamedArraySpec& array : arrays.array) add(array.path);
                        },
                        [](ImagesSpec&) {},  // a folder, or tar files, which OpenImages() joins
                        [&](auto& other) {
                          if constexpr (requires { other.path; }) add(other.path);
                        }},
             source);
  return paths;
}

// Samples are numbered consecutively over the parts.
class JoinedDataset final : public Dataset {
 public:
  explicit JoinedDataset(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) {
      const std::int64_t first = ends_.empty() ? 0 : ends_.back();
      ends_.push_back(first + part->size());
      for (BadRecord record : part->bad_records()) {
        record.sample += first;
        if (record.replacement != BadRecord::kLeftOut) record.replacement += first;
        bad_.push_back(std::move(record));
      }
    }
  }

  [[nodiscard]] std::int64_t size() const override { return ends_.back(); }
  [[nodiscard]] const SampleSpec& spec() const override { return parts_.front()->spec(); }
  [[nodiscard]] std::span<const BadRecord> bad_records() const override { return bad_; }
  [[nodiscard]] std::string conversions() const override {
    std::string all;
    for (const auto& part : parts_) {
      const std::string own = part->conversions();
      if (all.find(own) == std::string::npos) all += StrCat(all.empty() ? "" : "; ", own);
    }
    return all;
  }
  [[nodiscard]] std::optional<bool> has_integer_features() const override {
    return parts_.front()->has_integer_features();
  }
  [[nodiscard]] Status CheckUnchanged() const override {
    for (const auto& part : parts_) GACCD_RETURN_IF_ERROR(part->CheckUnchanged());
    return Status::Ok();
  }
  [[nodiscard]] std::int64_t gather_bytes(std::int64_t samples) const override {
    std::int64_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->gather_bytes(samples));
    return most;
  }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    const std::size_t part = FindPart(index);
    return parts_[part]->Length(index - FirstSample(part));
  }

  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    LabelCounts counts;
    for (const std::int64_t index : indices) {
      const std::size_t part = FindPart(index);
      const std::int64_t own = index - FirstSample(part);
      counts += parts_[part]->CountLabels({&own, 1});
    }
    return counts;
  }

  // Consecutive samples of one part are read together.
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    constexpr std::size_t kMax = 64;
    std::array<std::int64_t, kMax> own{};
    std::array<void*, kMaxTensors> memory{};
    for (std::size_t at = 0, count = 0; at < indices.size(); at += count) {
      const std::size_t part = FindPart(indices[at]);
      for (count = 0; count < std::min(kMax, indices.size() - at); ++count) {
        const std::int64_t index = indices[at + count];
        if (FindPart(index) != part) break;
        own[count] = index - FirstSample(part);
      }
      parts_[part]->Gather(std::span(own).first(count), Rows(spec(), out, at, count, memory));
    }
  }

 private:
  [[nodiscard]] std::size_t FindPart(std::int64_t index) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  [[nodiscard]] std::int64_t FirstSample(std::size_t part) const {
    return part == 0 ? 0 : ends_[part - 1];
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<std::int64_t> ends_;  // first sample after each part
  std::vector<BadRecord> bad_;
};

// Files by the text that the '*' matches.
using Matches = std::map<std::string, std::string>;

// Whether the name of a folder has a '*' and there is no such folder.
bool HasPatternInFolder(const std::string& path, const std::string& folder) {
  const std::string parent = ParentFolder(path);
  if (parent.find('*') == std::string::npos || IsFolder(parent)) return false;
  return folder.empty() || path.starts_with('/') || !IsFolder(StrCat(folder, "/", parent));
}

}  // namespace

bool NamesFiles(const std::string& path, const std::string& folder) {
  return IsPattern(path) || HasPatternInFolder(path, folder);
}

Result<Matches> MatchFiles(const std::string& pattern, const std::string& folder) {
  const auto stars = std::ranges::count(pattern.substr(pattern.rfind('/') + 1), '*');
  const bool in_folder = HasPatternInFolder(pattern, folder);
  if (stars != 1 || in_folder) {
    return Status(ErrorKind::kConfig,
                  StrCat("'", pattern, "': expected one '*', in the name of the file, in every ",
                         "path of this source or in none, found ",
                         in_folder ? "it in the name of a folder" : StrCat(stars)));
  }
  GACCD_ASSIGN_OR_RETURN(Matches here, Glob(pattern));
  if (!here.empty()) return here;
  const bool absolute = pattern.starts_with('/');
  const bool elsewhere = !folder.empty() && !absolute;
  if (elsewhere) {
    GACCD_ASSIGN_OR_RETURN(Matches there, Glob(StrCat(folder, "/", pattern)));
    if (!there.empty()) return there;
  }
  return Status(ErrorKind::kIo, StrCat("no file is called '", pattern, "'",
                                       absolute ? "" : " in the current folder",
                                       elsewhere ? StrCat(" or in ", folder) : ""));
}

Result<std::vector<SourceSpec>> ExpandPatterns(const SourceSpec& source,
                                               const std::string& folder) {
  SourceSpec pattern_source = source;
  const std::vector<std::string*> patterns = ListPaths(pattern_source);
  const auto is_pattern = [&](const std::string* path) { return NamesFiles(*path, folder); };
  if (std::ranges::none_of(patterns, is_pattern)) return std::vector{source};
  std::vector<Matches> matches;
  for (const std::string* pattern : patterns) {
    GACCD_ASSIGN_OR_RETURN(Matches found, MatchFiles(*pattern, folder));
    matches.push_back(std::move(found));
  }
  std::vector<SourceSpec> sources;
  for (const auto& [text, file] : matches.front()) {
    sources.push_back(source);
    const std::vector<std::string*> paths = ListPaths(sources.back());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto found = matches[i].find(text);
      if (found == matches[i].end()) {
        return Status(ErrorKind::kData, StrCat("expected a file '", *patterns[i], "' with '", text,
                                               "' for the '*', as '", file, "', found none"));
      }
      *paths[i] = found->second;
    }
  }
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (matches[i].size() == sources.size()) continue;
    return Status(ErrorKind::kData,
                  StrCat("'", *patterns[i], "': expected ", sources.size(), " files, as many as '",
                         *patterns.front(), "', found ", matches[i].size()));
  }
  return sources;
}

Status CheckSameStorage(std::optional<bool> expected, std::optional<bool> found,
                        std::string_view what, std::string_view first_what) {
  if (!expected || !found || *expected == *found) return Status::Ok();
  const auto kind = [](bool integers) { return integers ? "integers" : "floats"; };
  return {ErrorKind::kData,
          StrCat(what, ": expected features stored as ", kind(*expected), ", as in ", first_what,
                 ", found ", kind(*found),
                 "; data.normalize is for both: save them with the same type and scale")};
}

Result<std::unique_ptr<Dataset>> JoinDatasets(std::vector<std::unique_ptr<Dataset>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string file = StrCat("file ", i + 1, " of ", parts.size());
    if (parts[i]->spec() != parts.front()->spec()) {
      return Status(ErrorKind::kData,
                    StrCat(file, ": expected samples of ", Describe(parts.front()->spec()),
                           ", as in the first, found ", Describe(parts[i]->spec())));
    }
    GACCD_RETURN_IF_ERROR(CheckSameStorage(parts.front()->has_integer_features(),
                                           parts[i]->has_integer_features(), file, "the first"));
  }
  std::unique_ptr<Dataset> joined = std::make_unique<JoinedDataset>(std::move(parts));
  return joined;
}

}  // namespace gaccd
