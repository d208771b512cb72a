#include "daemon/config/arguments.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxFlagFileDepth = 8;
constexpr std::string_view kFlagFile = "flagfile";

std::string WithDashes(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// The parts of "--name=value" or "--name".
struct FlagParts {
  std::string name;
  std::optional<std::string> value;
};

bool LooksLikeFlag(std::string_view text) { return text.size() > 1 && text[0] == '-'; }

FlagParts SplitFlag(std::string_view text, std::string_view separators) {
  text.remove_prefix(text.starts_with("--") ? 2 : 1);
  const std::size_t end = text.find_first_of(separators);
  FlagParts parts{WithDashes(text.substr(0, end)), std::nullopt};
  if (end != std::string_view::npos) parts.value = std::string(text.substr(end + 1));
  return parts;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t from = text.find_first_not_of(kBlank);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kBlank) - from + 1);
}

// Flags determine which files a run reads and writes: the file must belong to this user or root,
// and must not be writable by everyone.
Result<std::string> ReadFlagFile(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return ErrnoStatus("cannot read", path);
  GACCD_ASSIGN_OR_RETURN(std::string text, ReadStart(file.get(), path, kMaxTextBytes + 1));
  if (!IsTrustedOwner(info.st_uid)) {
    return Status(ErrorKind::kUsage,
                  StrCat("'", path, "' belongs to user ", info.st_uid, ", expected user ",
                         ::geteuid(), " or root: if you trust it, make a copy of your own"));
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return Status(ErrorKind::kUsage,
                  StrCat("every user may write to '", path, "': expected only you (chmod o-w)"));
  }
  if (text.size() > kMaxTextBytes) {
    return Status(ErrorKind::kUsage, StrCat("'", path, "' is too large: at most ", kMaxTextBytes,
                                            " bytes, found ", info.st_size));
  }
  return text;
}

// For names of flags in other trainers: the flag to use instead; empty: not such a name.
std::string_view FlagHint(std::string_view name) {
  constexpr std::string_view kBatch =
      "--target-batch is the samples of an update over all ranks, "
      "--micro-batch the most that a rank holds at once";
  constexpr std::string_view kSteps =
      "the number of micro-steps follows from --target-batch, --micro-batch and the ranks";
  constexpr std::string_view kLr = "give --set optimizer.lr=VALUE";
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"batch-size", kBatch},
      {"global-batch-size", kBatch},
      {"per-device-train-batch-size", kBatch},
      {"accum-steps", kSteps},
      {"grad-accum-steps", kSteps},
      {"gradient-accumulation-steps", kSteps},
      {"accumulate-grad-batches", kSteps},
      {"lr", kLr},
      {"learning-rate", kLr}};
  const auto* row =
      std::ranges::find(kNames, name, &std::pair<std::string_view, std::string_view>::first);
  return row == std::end(kNames) ? std::string_view() : row->second;
}

class Splitter {
 public:
  explicit Splitter(std::span<const KnownFlag> known) : known_(known) {}

  Status SplitArgv(std::span<const char* const> args) {
    bool only_words = false;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string_view text = args[i];
      if (!only_words && text == "--") {
        only_words = true;
      } else if (only_words || !LooksLikeFlag(text)) {
        split_.words.emplace_back(text);
      } else {
        FlagParts parts = SplitFlag(text, "=");
        // In "--nodes --strict" the value is missing, in "--nodes -5" it is wrong.
        const bool next_is_value = !parts.value && NeedsValue(parts.name) && i + 1 < args.size() &&
                                   !std::string_view(args[i + 1]).starts_with("--");
        if (next_is_value) parts.value = args[++i];
        GACCD_RETURN_IF_ERROR(Add(text, std::move(parts), ""));
      }
    }
    return {};
  }

  [[nodiscard]] Arguments Release() { return std::move(split_); }

 private:
  [[nodiscard]] const KnownFlag* Find(std::string_view name) const {
    const auto match = std::find_if(known_.begin(), known_.end(),
                                    [name](const KnownFlag& flag) { return flag.name == name; });
    return match == known_.end() ? nullptr : &*match;
  }
  [[nodiscard]] bool NeedsValue(std::string_view name) const {
    if (name == kFlagFile) return true;
    const KnownFlag* flag = Find(name);
    return flag != nullptr && !flag->is_bool;
  }

  // text: the argument as given, for messages.
  Status Add(std::string_view text, FlagParts parts, const std::string& where) {
    if (parts.name == kFlagFile) return AddFlagFiles(parts.value.value_or(""), where);
    const KnownFlag* flag = Find(parts.name);
    if (flag == nullptr && parts.name.starts_with("no") && !parts.value) {
      const KnownFlag* positive = Find(std::string_view(parts.name).substr(2));
      if (positive != nullptr && positive->is_bool) {
        split_.flags.push_back({positive->name, "false", where});
        return {};
      }
    }
    if (flag == nullptr) return Unknown(text, parts.name, where);
    if (flag->is_bool && !parts.value) parts.value = "true";
    if (!parts.value || parts.value->empty()) {
      return {ErrorKind::kUsage, StrCat(where, "--", flag->name, " needs a value")};
    }
    split_.flags.push_back({flag->name, *std::move(parts.value), where});
    return {};
  }

  [[nodiscard]] Status Unknown(std::string_view text, std::string_view name,
                               const std::string& where) const {
    if (const std::string_view hint = FlagHint(name); !hint.empty()) {
      return {ErrorKind::kUsage, StrCat(where, "unknown flag '", text, "': ", hint)};
    }
    std::vector<std::string> names;
    for (const KnownFlag& flag : known_) names.push_back("--" + flag.name);
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    return {ErrorKind::kUsage,
            StrCat(where, "unknown flag '", text, "'", Suggestion(StrCat("--", name), candidates))};
  }

  Status AddFlagFiles(const std::string& paths, const std::string& where) {
    if (paths.empty()) return {ErrorKind::kUsage, StrCat(where, "--flagfile needs a value")};
    for (const std::string& path : Split(paths, ',')) {
      GACCD_RETURN_IF_ERROR(AddFlagFile(path, where));
    }
    return {};
  }

  Status AddFlagFile(const std::string& path, const std::string& where) {
    if (open_files_ == kMaxFlagFileDepth) {
      return {ErrorKind::kUsage, StrCat(where, "--flagfile=", path, " is nested more than ",
                                        kMaxFlagFileDepth, " deep; does it read itself?")};
    }
    Result<std::string> text = ReadFlagFile(path);
    if (!text.ok()) return text.status().WithContext(StrCat(where, "--flagfile"));
    ++open_files_;
    int number = 0;
    for (const std::string& line : Split(*text, '\n')) {
      const std::string here = StrCat(path, ":", ++number, ": ");
      const std::string_view content = Trimmed(number == 1 ? WithoutByteOrderMark(line) : line);
      if (content.empty() || content[0] == '#') continue;
      if (!LooksLikeFlag(content)) {
        return {ErrorKind::kUsage, StrCat(here, "expected --flag=value, found '", content, "'")};
      }
      FlagParts parts = SplitFlag(content, "= \t");
      if (parts.value) parts.value = Trimmed(*parts.value);
      GACCD_RETURN_IF_ERROR(Add(content, std::move(parts), here));
    }
    --open_files_;
    return {};
  }

  std::span<const KnownFlag> known_;
  Arguments split_;
  std::size_t open_files_ = 0;
};

// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// ("optimal string alignment"), computed row by row.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above.back();
}

std::string_view WithoutDashes(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('-'), text.size()));
}

// "micro-batch" contains the word "batch".
bool ContainsWord(std::string_view name, std::string_view word) {
  return StrCat("-", name, "-").find(StrCat("-", word, "-")) != std::string::npos;
}

}  // namespace

std::string Suggestion(std::string_view text, std::span<const std::string_view> candidates) {
  constexpr std::size_t kMaxLength = 64;  // the time grows with the product of the lengths
  constexpr std::size_t kMinWord = 3;
  constexpr std::size_t kMaxWords = 3;
  const std::string_view name = WithoutDashes(text);
  if (name.size() > kMaxLength) return {};
  std::string_view nearest;
  std::size_t min_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  std::vector<std::string_view> related;
  for (const std::string_view candidate : candidates) {
    const std::string_view other = WithoutDashes(candidate);
    if (name.size() >= kMinWord && ContainsWord(other, name)) related.push_back(candidate);
    const std::size_t distance = EditDistance(name, other);
    // Texts without a common letter are not suggested.
    if (distance >= min_distance || distance >= std::max(name.size(), other.size())) continue;
    min_distance = distance;
    nearest = candidate;
  }
  if (!nearest.empty()) return StrCat(" (did you mean ", nearest, "?)");
  if (related.empty() || related.size() > kMaxWords) return {};
  return StrCat(" (did you mean ", Join(related, " or "), "?)");
}

Result<Arguments> SplitArguments(std::span<const char* const> args,
                                 std::span<const KnownFlag> known) {
  Splitter splitter(known);
  GACCD_RETURN_IF_ERROR(splitter.SplitArgv(args));
  return splitter.Release();
}

}  // namespace gaccd
