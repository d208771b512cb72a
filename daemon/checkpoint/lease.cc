#include "daemon/checkpoint/lease.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/checkpoint/writer.h"

namespace gaccd {

namespace {

constexpr std::string_view kPrefix = ".epoch-";
constexpr std::int64_t kMaxEpoch = 999'999'999;
constexpr int kMaxTries = 100;
constexpr std::size_t kMaxClaimBytes = 8192;  // may contain a path
constexpr std::string_view kBack = "\nback ";
constexpr std::string_view kBegun = "\nbegun ";

std::string ClaimName(std::int64_t epoch) { return StrCat(kPrefix, Format("%06ld", epoch)); }

// 0 for other names.
std::int64_t ClaimedEpoch(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const std::int64_t epoch = ToNumber<std::int64_t>(name).value_or(0);
  return epoch >= 1 && epoch <= kMaxEpoch ? epoch : 0;
}

// The highest epoch ever claimed, according to the claims and generations in the folder.
std::int64_t HighestEpoch(const std::vector<std::string>& names) {
  std::int64_t highest = 0;
  for (const std::string& name : names) {
    highest = std::max(highest, ClaimedEpoch(name));
    const auto generation = ParseGenerationName(name);
    if (generation && generation->epoch <= kMaxEpoch) {
      highest = std::max(highest, generation->epoch);
    }
  }
  return highest;
}

// Older claims contain nothing that is not in the newest.
void RemoveOldClaims(const std::string& folder, const std::vector<std::string>& names,
                     std::int64_t epoch) {
  for (const std::string& name : names) {
    const std::int64_t old = ClaimedEpoch(name);
    if (old > 0 && old < epoch) ::unlink(StrCat(folder, "/", name).c_str());
  }
}

// The first line of a claim: "job 812 process 4711 on n3".
std::string ClaimLine(const OwnerName& me) {
  return StrCat("job ", me.job, " process ", me.pid, " on ", me.host, "\n");
}

Result<std::string> ReadClaim(const std::string& folder, std::int64_t epoch) {
  return ReadStart(StrCat(folder, "/", ClaimName(epoch)), kMaxClaimBytes);
}

struct Claim {
  std::int64_t epoch = 0;
  std::string text = {};
};

// The newest claim that has a text: a writer that was killed while claiming left none. Empty: none.
Claim NewestClaim(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::int64_t> epochs;
  for (const std::string& name : names) epochs.push_back(ClaimedEpoch(name));
  std::sort(epochs.rbegin(), epochs.rend());
  for (const std::int64_t epoch : epochs) {
    if (epoch == 0) break;
    auto text = ReadClaim(folder, epoch);
    if (text.ok() && text->ends_with("\n")) return {epoch, *std::move(text)};
  }
  return {};
}

// An incomplete claim is removed: it would only use up a number.
Status WriteClaim(int file, const std::string& text, const std::string& folder,
                  const std::string& path) {
  Status written = WriteAll(file, text, path);
  if (written.ok() && ::fsync(file) != 0) written = ErrnoStatus("cannot make durable", path);
  if (written.ok()) written = SyncFolder(folder);
  if (!written.ok()) ::unlink(path.c_str());
  return written;
}

// The epoch from which on job `job` has been the only writer, if the claim is its own; otherwise 0.
// Stored in the second line of a claim: "since 7".
std::int64_t FindJobSince(const Claim& claim, const std::string& job) {
  const std::string& text = claim.text;
  if (!text.starts_with(StrCat("job ", job, " process "))) return 0;
  constexpr std::string_view kSince = "\nsince ";
  const std::size_t at = text.find(kSince);
  std::int64_t since = 0;
  if (at == std::string::npos) return 0;
  const char* const begin = text.data() + at + kSince.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), since);
  return error == std::errc() && since >= 1 && since <= claim.epoch ? since : 0;
}

struct Note {
  std::int64_t epoch = 0;  // 0: there is none
  std::string text = {};
};

// Parses "<key>7<word>text\n" at the end of `claim`.
Note ParseNote(std::string_view claim, std::string_view key, std::string_view word) {
  const std::size_t at = claim.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = claim.substr(at + key.size());
  Note note;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), note.epoch);
  if (error != std::errc() || note.epoch < 1 || note.epoch > kMaxEpoch) return {};
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (!rest.starts_with(word) || !rest.ends_with("\n")) return {};
  rest.remove_prefix(word.size());
  rest.remove_suffix(1);
  note.text = rest;
  return note;
}

// Parses the last lines of a claim: "back 9 to step-000000000050-e000001", "begun 7 from never".
TrainingStart ParseTraining(const std::string& claim) {
  Note begun = ParseNote(claim, kBegun, " from ");
  const std::size_t at = claim.find(kBegun);
  const std::string before = at == std::string::npos ? claim : claim.substr(0, at + 1);
  Note back = ParseNote(before, kBack, " to ");
  if (!ParseGenerationName(back.text)) back = {};
  return {begun.epoch, std::move(begun.text), back.epoch, std::move(back.text)};
}

std::string TrainingLines(const TrainingStart& training) {
  std::string lines;
  if (training.back_since > 0) {
    lines += StrCat(kBack.substr(1), training.back_since, " to ", training.back_to, "\n");
  }
  if (training.since > 0) {
    lines += StrCat(kBegun.substr(1), training.since, " from ", training.from, "\n");
  }
  return lines;
}

// The claims can be read by those who can read the folder: --group-access.
unsigned ClaimMode(const std::string& folder) {
  struct stat info {};
  return ::stat(folder.c_str(), &info) == 0 ? kFileMode | (info.st_mode & 0044) : kFileMode;
}

}  // namespace

TrainingStart NewestTraining(const std::string& folder) {
  const auto names = ListFolder(folder, kMaxEntries);
  return names.ok() ? ParseTraining(NewestClaim(folder, *names).text) : TrainingStart();
}

Result<WriterLease> WriterLease::Acquire(const std::string& folder, const OwnerName& me,
                                         const OwnerPatience& patience) {
  return AcquireNext(folder, me, patience, /*keeps_claim=*/false);
}

Result<WriterLease> WriterLease::AcquireKeepingClaim(const std::string& folder,
                                                     const OwnerName& me) {
  return AcquireNext(folder, me, {}, /*keeps_claim=*/true);
}

Result<WriterLease> WriterLease::AcquireNext(const std::string& folder, const OwnerName& me,
                                             const OwnerPatience& patience, bool keeps_claim) {
  auto owner = FolderOwner::Acquire(folder, me, patience);
  if (!owner.ok()) return owner.status().WithContext("checkpoints");
  for (int i = 0; i < kMaxTries; ++i) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder, kMaxEntries));
    const std::int64_t highest = HighestEpoch(names);
    if (highest == kMaxEpoch) {
      return Status(ErrorKind::kData, StrCat("writer epochs are used up: expected one below ",
                                             kMaxEpoch, ", found ", highest));
    }
    const std::string path = StrCat(folder, "/", ClaimName(highest + 1));
    const FileDescriptor claim(::open(
        path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, ClaimMode(folder)));
    if (!claim.valid() && errno == EEXIST) continue;  // another process was faster
    if (!claim.valid()) return ErrnoStatus("cannot create", path);
    const Claim last = NewestClaim(folder, names);
    const std::int64_t earlier = FindJobSince(last, me.job);
    const std::int64_t since = earlier > 0 ? earlier : highest + 1;
    TrainingStart training = ParseTraining(last.text);
    std::string text = StrCat(ClaimLine(me), "since ", since, "\n", TrainingLines(training));
    if (keeps_claim && !last.text.empty()) text = last.text;
    GACCD_RETURN_IF_ERROR(WriteClaim(claim.get(), text, folder, path));
    RemoveOldClaims(folder, names, highest + 1);
    return WriterLease(folder, *std::move(owner), highest + 1, since, std::move(training));
  }
  return Status(ErrorKind::kIo, StrCat("'", folder, "': no writer epoch in ", kMaxTries,
                                       " tries: too many runs start at once"));
}

Status WriterLease::BeginTraining(const std::string& from) {
  training_ = {.since = epoch_, .from = from};
  return RewriteClaim();
}

Status WriterLease::GoBackTo(const std::string& generation) {
  GACCD_ASSIGN_OR_RETURN(const auto all, ListGenerations(folder_));
  const auto newest = std::ranges::find_if(all, &Generation::committed);
  const bool back = newest == all.end() || newest->name() != generation;
  training_.back_since = back ? epoch_ : 0;
  training_.back_to = back ? generation : std::string();
  return RewriteClaim();
}

Status WriterLease::RewriteClaim() const {
  GACCD_ASSIGN_OR_RETURN(std::string claim, ReadClaim(folder_, epoch_));
  const std::size_t at = std::min(claim.find(kBack), claim.find(kBegun));
  if (at != std::string::npos) claim.resize(at + 1);
  return ReplaceFile(StrCat(folder_, "/", ClaimName(epoch_)),
                     StrCat(claim, TrainingLines(training_)), /*durable=*/true, ClaimMode(folder_));
}

Status WriterLease::Check() const {
  GACCD_RETURN_IF_ERROR(owner_.CheckInPlace());
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder_, kMaxEntries));
  const std::int64_t highest = HighestEpoch(names);
  if (highest <= epoch_) return Status::Ok();
  const auto other = ReadStart(StrCat(folder_, "/", ClaimName(highest)), 256);
  const std::string who = other.ok() ? other->substr(0, other->find('\n')) : "unknown";
  return {ErrorKind::kConfig,
          StrCat("checkpoint folder '", folder_, "' was taken over: this run has writer epoch ",
                 epoch_, ", found ", highest, " (", who, "); nothing more is written here")};
}

namespace {

Status MakeFolder(const CheckpointOptions& options) {
  GACCD_RETURN_IF_ERROR(
      MakeFolders(options.folder, (options.group_access ? kGroupMayRead : Modes()).folder));
  // Files fsynced in a folder are lost if the folder's own name is not synced.
  return SyncFolder(ParentFolder(options.folder));
}

Result<WriterLease> AcquireLease(const CheckpointOptions& options, const OwnerName& me) {
  GACCD_RETURN_IF_ERROR(MakeFolder(options).WithContext("checkpoints"));
  return WriterLease::Acquire(options.folder, me, options.lease_patience);
}

std::string TrainingText(const TrainingStart& training) {
  return StrCat(training.since, " ", training.back_since, " ", training.back_to, " ",
                training.from);
}

TrainingStart ParseTrainingStart(std::istringstream& text) {
  TrainingStart training;
  text >> training.since >> training.back_since;
  text.get();
  std::getline(text, training.back_to, ' ');
  std::getline(text, training.from, '\0');
  return training;
}

}  // namespace

Result<TrainingStart> CheckpointWriter::FindNewestTraining(Communicator& comm,
                                                           const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(
      const std::string text,
      ShareFromRank(comm, 0, comm.rank() == 0 ? TrainingText(NewestTraining(folder)) : ""));
  std::istringstream fields(text);
  return ParseTrainingStart(fields);
}

Result<CheckpointLease> CheckpointWriter::Claim(Communicator& comm,
                                                const CheckpointOptions& options,
                                                const OwnerName& me) {
  CheckpointLease claimed;
  Result<std::string> numbers = std::string();
  if (comm.rank() == 0) {
    auto lease = AcquireLease(options, me);
    if (!lease.ok()) {
      numbers = lease.status();
    } else {
      claimed.lease = *std::move(lease);
      numbers = StrCat(claimed.lease->epoch(), " ", claimed.lease->job_since(), " ",
                       TrainingText(claimed.lease->training()));
    }
  }
  GACCD_ASSIGN_OR_RETURN(numbers, ShareFromRank(comm, 0, numbers));
  std::istringstream fields(*numbers);
  fields >> claimed.epoch >> claimed.job_since;
  claimed.training = ParseTrainingStart(fields);
  return claimed;
}

Status CheckpointLease::BeginTraining(const std::string& from) {
  training = {.since = epoch, .from = from};
  return lease ? lease->BeginTraining(from) : Status::Ok();
}

Status CheckpointLease::GoBackTo(const std::string& generation) {
  training.back_since = epoch;
  training.back_to = generation;
  return lease ? lease->GoBackTo(generation) : Status::Ok();
}

}  // namespace gaccd
