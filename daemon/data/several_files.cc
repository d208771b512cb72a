#include "daemon/data/several_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::vector<std::string*> PathsOf(SourceSpec& source) {
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
                        [&](auto& other) {
                          if constexpr (requires { other.path; }) add(other.path);
                        }},
             source);
  return paths;
}

// Files by what the '*' stands for.
using Matches = std::map<std::string, std::string>;

Result<Matches> MatchesIn(const std::string& pattern) {
  const std::string folder = FolderOf(pattern);
  const std::string name = pattern.substr(pattern.rfind('/') + 1);
  const std::string before = name.substr(0, name.find('*'));
  const std::string after = name.substr(name.find('*') + 1);
  Matches matches;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.size() < before.size() + after.size() || !file.starts_with(before) ||
        !file.ends_with(after)) {
      continue;
    }
    const std::size_t length = file.size() - before.size() - after.size();
    matches.emplace(file.substr(before.size(), length), entry.path().string());
  }
  if (error) {
    return Status(ErrorKind::kIo,
                  StrCat("cannot list the folder of '", pattern, "': ", error.message()));
  }
  return matches;
}

Result<Matches> MatchesOf(const std::string& pattern, const std::string& folder) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos || pattern.find('*', star + 1) != std::string::npos ||
      pattern.find('/', star) != std::string::npos) {
    return Status(ErrorKind::kConfig,
                  StrCat("'", pattern,
                         "': expected one '*' in the name of the file, as the other "
                         "paths of this source, or in none of them"));
  }
  auto here = MatchesIn(pattern);
  if (here.ok() && !here->empty()) return here;
  const bool elsewhere = !folder.empty() && !pattern.starts_with('/');
  if (elsewhere) {
    auto there = MatchesIn(StrCat(folder, "/", pattern));
    if (there.ok() && !there->empty()) return there;
  }
  if (!here.ok()) return here;
  return Status(ErrorKind::kIo, StrCat("no file is called '", pattern, "' in the current folder",
                                       elsewhere ? StrCat(" or in ", folder) : ""));
}

// Sample numbers go on from part to part.
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
  [[nodiscard]] std::string conversions() const override { return parts_.front()->conversions(); }
  [[nodiscard]] Status CheckUnchanged() const override {
    for (const auto& part : parts_) GACCD_RETURN_IF_ERROR(part->CheckUnchanged());
    return Status::Ok();
  }
  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    const std::size_t part = PartOf(index);
    return parts_[part]->Length(index - FirstOf(part));
  }

  // Neighbours of one part are read together.
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    constexpr std::size_t kMost = 64;
    std::array<std::int64_t, kMost> own{};
    const std::vector<TensorSpec>& specs = spec().tensors;
    std::array<void*, kMaxTensors> rest{};
    for (std::size_t at = 0, count = 0; at < indices.size(); at += count) {
      const std::size_t part = PartOf(indices[at]);
      for (count = 0; count < std::min(kMost, indices.size() - at); ++count) {
        const std::int64_t index = indices[at + count];
        if (PartOf(index) != part) break;
        own[count] = index - FirstOf(part);
      }
      for (std::size_t t = 0; t < specs.size(); ++t) {
        const auto row = static_cast<std::size_t>(RowBytes(specs[t], out.length));
        rest[t] = out.tensor<std::byte>(t) + at * row;
      }
      parts_[part]->Gather(std::span(own).first(count),
                           {.samples = static_cast<std::int64_t>(count),
                            .length = out.length,
                            .tensors = std::span(rest).first(specs.size()),
                            .draw = out.draw});
    }
  }

 private:
  [[nodiscard]] std::size_t PartOf(std::int64_t index) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  [[nodiscard]] std::int64_t FirstOf(std::size_t part) const {
    return part == 0 ? 0 : ends_[part - 1];
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<std::int64_t> ends_;  // of the parts
  std::vector<BadRecord> bad_;
};

}  // namespace

Result<std::vector<SourceSpec>> SourcesOf(const SourceSpec& source, const std::string& folder) {
  SourceSpec whole = source;
  const std::vector<std::string*> patterns = PathsOf(whole);
  const auto has_star = [](const std::string* path) { return path->find('*') != path->npos; };
  if (std::ranges::none_of(patterns, has_star)) return std::vector{source};
  std::vector<Matches> matches;
  for (const std::string* pattern : patterns) {
    GACCD_ASSIGN_OR_RETURN(Matches found, MatchesOf(*pattern, folder));
    matches.push_back(std::move(found));
  }
  std::vector<SourceSpec> sources;
  for (const auto& [text, file] : matches.front()) {
    sources.push_back(source);
    const std::vector<std::string*> paths = PathsOf(sources.back());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto found = matches[i].find(text);
      if (found == matches[i].end()) {
        return Status(ErrorKind::kData, StrCat("'", file, "' has no '", *patterns[i], "' with '",
                                               text, "' for the '*'"));
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

Result<std::unique_ptr<Dataset>> JoinDatasets(std::vector<std::unique_ptr<Dataset>> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i]->spec() == parts.front()->spec()) continue;
    return Status(ErrorKind::kData,
                  StrCat("file ", i + 1, " of ", parts.size(), ": expected samples of ",
                         Describe(parts.front()->spec()), ", as in the first, found ",
                         Describe(parts[i]->spec())));
  }
  std::unique_ptr<Dataset> joined = std::make_unique<JoinedDataset>(std::move(parts));
  return joined;
}

}  // namespace gaccd
