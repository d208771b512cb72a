#include "daemon/rundir/ledger.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "proto/ledger.pb.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxReason = 1000;

std::optional<LedgerEntry> Parse(std::string_view line) {
  proto::LedgerEntry message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(std::string(line), &message, options);
  if (!parsed.ok() || message.attempt().empty()) return std::nullopt;
  LedgerEntry entry{.attempt = message.attempt(),
                    .started = message.start_ts(),
                    .ended = message.end_ts(),
                    .first = {message.first_step(), message.first_micro_step()},
                    .last = {message.last_step(), message.last_micro_step()},
                    .exit = message.exit(),
                    .reason = message.reason()};
  if (message.has_killed_step()) {
    entry.killed = {.step = message.killed_step(), .memory_bytes = message.killed_memory_bytes()};
  }
  for (const NextStep next : {NextStep::kDone, NextStep::kRequeue, NextStep::kNoRequeue}) {
    if (message.verdict() == Name(next)) entry.next = next;
  }
  return entry;
}

// The last kMaxTextBytes of a file, from the begin of a line on.
Result<std::string> ReadLastLines(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string text(std::min<std::uint64_t>(file.size(), kMaxTextBytes), '\0');
  const std::uint64_t from = file.size() - text.size();
  GACCD_RETURN_IF_ERROR(file.ReadAt(from, std::as_writable_bytes(std::span(text))));
  if (from > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  return text;
}

}  // namespace

std::vector<LedgerEntry> ReadLedger(const std::string& path) {
  std::vector<LedgerEntry> entries;
  const Result<std::string> text = ReadLastLines(path);
  if (!text.ok()) return entries;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    if (auto entry = Parse(rest.substr(0, end))) entries.push_back(*std::move(entry));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return entries;
}

Status AppendToLedger(const std::string& path, const LedgerEntry& entry, unsigned mode) {
  proto::LedgerEntry message;
  message.set_v(1);
  message.set_attempt(entry.attempt);
  if (!entry.started.empty()) message.set_start_ts(entry.started);
  message.set_end_ts(entry.ended);
  message.set_first_step(entry.first.step);
  message.set_first_micro_step(entry.first.micro_step);
  message.set_last_step(entry.last.step);
  message.set_last_micro_step(entry.last.micro_step);
  message.set_exit(entry.exit);
  message.set_verdict(std::string(Name(entry.next)));
  message.set_reason(entry.reason.substr(0, kMaxReason));
  if (entry.killed) {
    message.set_killed_step(entry.killed->step);
    message.set_killed_memory_bytes(entry.killed->memory_bytes);
  }
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor file,
                         OpenFile(path, O_RDWR | O_APPEND | O_CREAT, mode));
  // A line that a crash cut off must not swallow this one.
  std::string line = FlatJson(message) + "\n";
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n') line = "\n" + line;
  GACCD_RETURN_IF_ERROR(WriteAll(file.get(), line, path));
  if (::fsync(file.get()) != 0) return ErrnoStatus("cannot write", path);
  return Status::Ok();
}

}  // namespace gaccd
