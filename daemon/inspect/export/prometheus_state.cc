#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/config/revision.h"
#include "daemon/inspect/export/prometheus.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of the file
constexpr std::size_t kMaxRecords = 100'000;
constexpr std::uint64_t kEnd =
    4096;  // bytes at the begin and at the end of a file that are compared

std::string ComputeDigest(std::string_view text) {
  Sha256 sha;
  sha.Update(std::as_bytes(std::span(text)));
  return Hex(sha.Finish());
}

std::string Build() { return StrCat(GaccdVersion(), " ", GaccdRevision()); }

std::uint64_t FileSize(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

// Names and sizes of the files of an attempt that are written atomically.
std::string DescribeRecords(const Attempt& attempt) {
  std::string text =
      StrCat(attempt.name, "\nverdict.json ", FileSize(attempt.folder + "/verdict.json"));
  const std::string crash = attempt.folder + "/crash";
  const auto names = ListFolder(crash, kMaxRecords);
  if (!names.ok()) return text + '\n';
  for (const std::string& name : *names)
    text += StrCat("\n", name, " ", FileSize(StrCat(crash, "/", name)));
  return text + '\n';
}

// The size and both ends of the first `size` bytes of events.jsonl. nullopt if it is shorter.
std::optional<std::string> DescribeEvents(const Attempt& attempt, std::uint64_t size) {
  std::string text = StrCat("events.jsonl ", size, "\n");
  if (size == 0) return text;
  const auto file = InputFile::Open(attempt.folder + "/events.jsonl");
  if (!file.ok() || file->size() < size) return std::nullopt;
  std::string end(std::min(size, kEnd), '\0');
  for (const std::uint64_t at : {std::uint64_t{0}, size - end.size()}) {
    if (!file->ReadAt(at, std::as_writable_bytes(std::span(end))).ok()) return std::nullopt;
    text += end;
  }
  return text;
}

// Identifies what does not change while the attempt `newest` continues: its records, and all files
// of previous attempts.
std::string FilesUpTo(const std::vector<Attempt>& attempts, const std::string& newest) {
  std::string text;
  for (const Attempt& attempt : attempts) {
    text += DescribeRecords(attempt);
    if (attempt.name == newest) break;
    text += DescribeEvents(attempt, FileSize(attempt.folder + "/events.jsonl")).value_or("");
  }
  return text;
}

// The digest of everything that was read of a run up to `position`. nullopt if its attempt has
// fewer bytes.
std::optional<std::string> ComputeDigest(const std::vector<Attempt>& attempts,
                                         const StreamPosition& position, const std::string& files) {
  const auto newest = std::ranges::find(attempts, position.attempt, &Attempt::name);
  if (newest == attempts.end()) return std::nullopt;
  const auto events = DescribeEvents(*newest, position.offset);
  return events ? std::optional(ComputeDigest(files + *events)) : std::nullopt;
}

// The figures of `run` if its files are those that were read; the stream then continues after them.
std::optional<FigureSum> Continue(const Json& run, EventStream& stream) {
  const std::string* const attempt = run.text("attempt");
  const auto offset = run.integer<std::uint64_t>("offset");
  const auto has_verdict = run.boolean("has_verdict");
  const std::string* const files = run.text("files");
  const Json* const figures = run.Find("figures");
  if (attempt == nullptr || !offset || !has_verdict || files == nullptr || figures == nullptr) {
    return std::nullopt;
  }
  const StreamPosition position{*attempt, *offset, *has_verdict};
  const auto digest =
      ComputeDigest(stream.attempts(), position, FilesUpTo(stream.attempts(), *attempt));
  if (!digest || *files != *digest) return std::nullopt;
  auto sum = FigureSum::FromJson(*figures);
  if (sum) stream.SkipTo(position);
  return sum;
}

}  // namespace

struct PrometheusState::Runs {
  std::map<std::string, Json> before;  // by folder, as in the file
  std::map<std::string, Json> now;
};

PrometheusState::PrometheusState() : runs_(std::make_unique<Runs>()) {}
PrometheusState::PrometheusState(PrometheusState&&) noexcept = default;
PrometheusState& PrometheusState::operator=(PrometheusState&&) noexcept = default;
PrometheusState::~PrometheusState() = default;

PrometheusState PrometheusState::Read(const std::string& path, std::string* problem) {
  PrometheusState state;
  if (!PathExists(path)) return state;
  const auto text = ReadStart(path, kMaxBytes);
  if (!text.ok()) {
    *problem = text.status().message();
    return state;
  }
  const std::size_t line = std::min(text->find('\n'), text->size());
  const std::string_view rest = std::string_view(*text).substr(std::min(line + 1, text->size()));
  const auto json =
      text->substr(0, line) == ComputeDigest(rest) ? Json::ParseObject(rest) : std::nullopt;
  const std::string* const build = json ? json->text("build") : nullptr;
  const Json* const runs = json ? json->Find("runs") : nullptr;
  if (build == nullptr || runs == nullptr || runs->object() == nullptr) {
    *problem = StrCat("'", path, "' is damaged; it is created again");
  } else if (*build == Build()) {
    state.runs_->before = {runs->object()->begin(), runs->object()->end()};
  }
  return state;
}

Status PrometheusState::Write(const std::string& path) const {
  const Json runs = Json::Object(runs_->now.begin(), runs_->now.end());
  const std::string text = Json(Json::Object{{"build", Build()}, {"runs", runs}}).Dump();
  return ReplaceFile(path, StrCat(ComputeDigest(text), "\n", text), /*durable=*/false);
}

Result<RunFigures> PrometheusState::ReadFigures(const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(folder));
  const std::string newest = stream.attempts().empty() ? "" : stream.attempts().back().name;
  // Determined before events are read, so that additions meanwhile are detected the next time.
  const std::string files = FilesUpTo(stream.attempts(), newest);
  std::optional<FigureSum> sum;
  const auto known = runs_->before.find(folder);
  if (known != runs_->before.end()) sum = Continue(known->second, stream);
  if (!sum) sum.emplace();
  Event event;
  while (stream.Next(&event)) sum->Add(event);
  if (sum->went_back_too_far()) {
    runs_->before.erase(folder);
    return ReadFigures(folder);
  }
  for (const Attempt& attempt : stream.attempts()) {
    const std::string path = attempt.folder + "/events.jsonl";
    if (!PathExists(path)) continue;
    const Status readable = InputFile::Open(path).status();
    if (!readable.ok()) {
      LogWarning(readable.message() + ": the metrics lack the updates of this attempt");
    }
  }
  if (!newest.empty()) {
    const StreamPosition position = stream.position();
    if (const auto digest = ComputeDigest(stream.attempts(), position, files)) {
      runs_->now[folder] = Json::Object{{"attempt", position.attempt},
                                        {"offset", position.offset},
                                        {"has_verdict", position.has_verdict},
                                        {"files", *digest},
                                        {"figures", sum->ToJson()}};
    }
  }
  return std::move(*sum).Finish(CountStarts(stream.attempts()));
}

}  // namespace gaccd
