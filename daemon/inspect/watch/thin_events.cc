#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/logs_command.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/step_sum.h"
#include "daemon/rundir/folder_owner.h"

namespace gaccd {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxHostBytes = 1500;  // of host names in a line

// The selection of updates that are kept.
struct KeptSteps {
  std::int64_t every = 2;
  std::set<std::int64_t> resumed;  // updates after which a later attempt continued
};

// The first and last update of a file.
struct FileSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

bool IsOrdinary(const Event& event, const KeptSteps& kept, const FileSteps& file) {
  if (event.name == "thinned") return true;
  if (event.name != "step") return false;
  const auto step = event.Whole("step");
  return step && *step % kept.every != 0 && *step != file.first && *step != file.last &&
         !kept.resumed.contains(*step) && event.Is("loss_finite") && event.Is("grad_finite") &&
         !event.Is("skipped") && event.Whole("samples") == event.Whole("target");
}

// Rewrites the lines of one file.
class FileThinner {
 public:
  FileThinner(DurableFile file, ThinnedEvents* done) : file_(std::move(file)), done_(*done) {}

  Status Add(const Event& event) {
    const StepSum sum = StepSum::FromEvent(event);
    if (sum.updates == 0) return Keep(event.line);  // a damaged number
    if (hosts_ + NewHostBytes(sum) > kMaxHostBytes) GACCD_RETURN_IF_ERROR(Flush());
    hosts_ += NewHostBytes(sum);
    sum_ += sum;
    newest_ = event;
    done_.updates += sum.updates;
    return Status::Ok();
  }
  Status Keep(std::string_view line) {
    GACCD_RETURN_IF_ERROR(Flush());
    return Write(line);
  }
  // torn: bytes after the last complete line.
  Status Finish(std::string_view torn) {
    GACCD_RETURN_IF_ERROR(Flush());
    text_ += torn;
    GACCD_RETURN_IF_ERROR(WriteOut());
    return file_.Commit();
  }

 private:
  // The length that new hosts add to a line: "name=count,".
  [[nodiscard]] std::size_t NewHostBytes(const StepSum& more) const {
    constexpr std::size_t kCount = 12;
    std::size_t bytes = 0;
    for (const auto& [host, count] : more.stragglers) {
      if (!sum_.stragglers.contains(host)) bytes += host.size() + kCount;
    }
    return bytes;
  }
  Status Flush() {
    if (sum_.updates == 0) return Status::Ok();
    const std::string line = std::exchange(sum_, {}).Line(newest_);
    hosts_ = 0;
    return Write(line);
  }
  Status Write(std::string_view line) {
    text_.append(line) += '\n';
    return text_.size() < kCopyBytes ? Status::Ok() : WriteOut();
  }
  Status WriteOut() {
    done_.bytes += text_.size();
    const Status status = file_.Write(std::as_bytes(std::span(text_)));
    text_.clear();
    return status;
  }

  DurableFile file_;
  ThinnedEvents& done_;
  std::string text_;
  StepSum sum_;
  Event newest_;  // of sum_
  std::size_t hosts_ = 0;
};

Status ThinFile(const std::string& path, const KeptSteps& kept, const FileSteps& steps,
                ThinnedEvents* done) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::Ok();  // an attempt without events
  GACCD_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path, info.st_mode & 0777));
  ThinnedEvents mine;
  FileThinner thinner(std::move(file), &mine);
  LineReader lines(path, kCopyBytes);
  Event event;
  while (const auto line = lines.Next()) {
    const bool is_event = ParseEvent(*line, &event);
    if (is_event && IsOrdinary(event, kept, steps)) {
      GACCD_RETURN_IF_ERROR(thinner.Add(event));
      continue;
    }
    const bool is_step = is_event && event.name == "step";
    mine.updates += is_step ? 1 : 0;
    mine.kept_updates += is_step ? 1 : 0;
    GACCD_RETURN_IF_ERROR(thinner.Keep(*line));
  }
  GACCD_RETURN_IF_ERROR(lines.status());
  if (lines.too_long() > 0) return Status::Ok();  // not written by gaccd: unchanged
  GACCD_RETURN_IF_ERROR(thinner.Finish(lines.torn()));
  done->bytes_before += static_cast<std::uint64_t>(info.st_size);
  done->bytes += mine.bytes;
  done->updates += mine.updates;
  done->kept_updates += mine.kept_updates;
  return Status::Ok();
}

// Finds updates after which later attempts continued, and the first and last update of the file.
Status FindSteps(const std::string& path, KeptSteps* kept, FileSteps* steps) {
  LineReader lines(path, kCopyBytes);
  Event event;
  while (const auto line = lines.Next()) {
    if (!ParseEvent(*line, &event)) continue;
    const std::int64_t step = event.Whole("step").value_or(0);
    if (event.name == "resume") kept->resumed.insert(step);
    if (event.name != "step") continue;
    if (steps->first == 0) steps->first = step;
    steps->last = step;
  }
  return lines.status();
}

}  // namespace

Result<ThinnedEvents> ThinEvents(const std::string& run_dir, std::int64_t every) {
  GACCD_ASSIGN_OR_RETURN(const AttemptList list, ListAttempts(run_dir));
  // Owns the folder like a run, so that no run can begin.
  auto owner = FolderOwner::Acquire(run_dir, MakeOwnerName(StrCat("compact-", ::getpid()), 0),
                                    {.own_job = {}, .other = {}});
  if (!owner.ok()) return owner.status().WithContext("--compact");
  KeptSteps kept{.every = every};
  std::vector<FileSteps> steps(list.attempts.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    GACCD_RETURN_IF_ERROR(FindSteps(list.attempts[i].folder + "/events.jsonl", &kept, &steps[i]));
    owner->Beat();
  }
  ThinnedEvents done;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string path = list.attempts[i].folder + "/events.jsonl";
    GACCD_RETURN_IF_ERROR(ThinFile(path, kept, steps[i], &done));
    owner->Beat();
  }
  return done;
}

Status RunThinCommand(const std::string& run_dir, std::int64_t every) {
  GACCD_ASSIGN_OR_RETURN(const ThinnedEvents done, ThinEvents(run_dir, every));
  return PrintOut(StrCat(
      "'", run_dir, "': ", done.kept_updates, " of ", done.updates, " updates keep their lines; ",
      Megabytes(static_cast<std::int64_t>(done.bytes_before)), " before, ",
      Megabytes(static_cast<std::int64_t>(done.bytes)), " now\n",
      "lost, of each other update: loss, gradient norm, learning rate, times and slowest rank;\n"
      "kept: their sums, and all evaluations, saves, failures and logs as they were\n"));
}

}  // namespace gaccd
