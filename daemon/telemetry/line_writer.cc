#include "daemon/telemetry/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

struct Line {
  std::string text;
  LineStamp stamp;
  std::int64_t lost_before = 0;  // lost lines between the previous one and this one
  LineStamp last_lost;
};

std::size_t LineBytes(const Line& line) { return sizeof(Line) + line.text.size(); }

// Used by the thread only: the file, and the state of the notices about lost lines.
class File {
 public:
  File(AppendFile file, LineWriter::NoticeMaker notice)
      : file_(std::move(file)), notice_(std::move(notice)) {}

  void Write(Line line) {
    if (line.lost_before > 0) CountLost(line.lost_before, line.last_lost);
    WriteNotice();
    if (!line.text.empty()) {
      file_.Append(std::move(line.text));
      last_ = line.stamp;
    }
  }
  void Sync() { file_.Sync(); }

  [[nodiscard]] std::int64_t dropped() const { return file_.dropped(); }
  [[nodiscard]] std::int64_t failures() const { return file_.failures(); }
  [[nodiscard]] const Status& first_failure() const {
    return file_.failures() > 0 ? file_.first_failure() : overflow_reason_;
  }

 private:
  void CountLost(std::int64_t lines, const LineStamp& last) {
    overflow_ += lines;
    last_ = last;
    if (!overflow_reason_.ok()) return;
    overflow_reason_ = {
        ErrorKind::kIo,
        StrCat("'", file_.path(), "' did not respond, and too many lines are waiting")};
  }
  void WriteNotice() {
    const std::int64_t total = file_.dropped() + overflow_;
    if (!notice_ || total == reported_) return;
    const std::string line = notice_(last_, {total - reported_, total, first_failure().message()});
    if (file_.Append(line, AppendFile::Counted::kNo)) reported_ = total;
  }

  AppendFile file_;
  LineWriter::NoticeMaker notice_;
  LineStamp last_;
  std::int64_t overflow_ = 0;  // lines that did not fit
  Status overflow_reason_;
  std::int64_t reported_ = 0;  // lost lines in notices, including those that did not fit
};

}  // namespace

struct LineWriter::State {
  State(AppendFile to, NoticeMaker notice, std::size_t max)
      : file(std::move(to), std::move(notice)), max_bytes(max) {}

  File file;  // used by the thread only
  const std::size_t max_bytes;

  mutable std::mutex mutex;       // protects everything below
  std::condition_variable hurry;  // ends kGatherTime
  std::condition_variable changed;
  std::deque<Line> lines;
  std::size_t bytes = 0;      // of `lines`
  Line tail;                  // no text; its lost_before: lines lost after the last one in `lines`
  std::int64_t overflow = 0;  // lines that did not fit
  std::int64_t syncs = 0;     // requested
  std::int64_t synced = 0;
  int flushes = 0;     // waiting calls
  bool asleep = true;  // whether Add() must wake the thread
  bool end = false;
  std::optional<std::chrono::steady_clock::time_point> busy_since;
  std::int64_t dropped = 0;  // of the file, after the last line
  std::int64_t failures = 0;
  Status first_failure;

  [[nodiscard]] bool has_lines() const { return !lines.empty() || tail.lost_before > 0; }
  [[nodiscard]] bool has_work() const { return has_lines() || syncs != synced; }
  [[nodiscard]] bool idle() const { return !has_work() && !busy_since; }
  [[nodiscard]] bool urgent() const { return flushes > 0 || syncs != synced || end; }
  Line PopLine() {
    if (lines.empty()) return std::exchange(tail, {});
    Line next = std::move(lines.front());
    lines.pop_front();
    bytes -= LineBytes(next);
    return next;
  }
};

Result<std::unique_ptr<LineWriter>> LineWriter::Start(AppendFile file, NoticeMaker notice,
                                                      std::size_t max_bytes) {
  auto state = std::make_shared<State>(std::move(file), std::move(notice), max_bytes);
  std::unique_ptr<LineWriter> writer(new LineWriter(state));
  GACCD_ASSIGN_OR_RETURN(
      writer->worker_, WorkerThread::Start("the thread of a log", [state] { WriteLines(*state); }));
  return writer;
}

LineWriter::~LineWriter() {
  if (!worker_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->end = true;
  }
  worker_->End(Flush(kPatience) ? kPatience : std::chrono::milliseconds(0));
}

void LineWriter::Add(std::string line, const LineStamp& stamp) {
  State& state = *state_;
  Line next{std::move(line), stamp, 0, {}};
  std::unique_lock lock(state.mutex);
  if (state.bytes > 0 && state.bytes + LineBytes(next) > state.max_bytes) {
    ++state.overflow;
    ++state.tail.lost_before;
    state.tail.last_lost = stamp;
    return;
  }
  std::swap(next.lost_before, state.tail.lost_before);
  next.last_lost = state.tail.last_lost;
  state.bytes += LineBytes(next);
  state.lines.push_back(std::move(next));
  const bool wake = std::exchange(state.asleep, false);
  lock.unlock();  // before waking the thread: it would block, with two more context switches
  if (wake) worker_->Wake();
}

bool LineWriter::Flush(std::chrono::milliseconds limit, Until until) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (until == Until::kDisk) ++state.syncs;
  ++state.flushes;
  if (std::exchange(state.asleep, false)) worker_->Wake();
  state.hurry.notify_one();
  const bool idle = state.changed.wait_for(lock, limit, [&] { return state.idle(); });
  --state.flushes;
  return idle;
}

void LineWriter::WriteLines(State& state) {
  std::unique_lock lock(state.mutex);
  while (state.has_work()) {
    state.busy_since = std::chrono::steady_clock::now();
    const bool sync = !state.has_lines();
    const std::int64_t syncs = state.syncs;
    Line line = sync ? Line() : state.PopLine();
    lock.unlock();
    sync ? state.file.Sync() : state.file.Write(std::move(line));
    lock.lock();
    state.busy_since.reset();
    if (sync) state.synced = syncs;
    state.dropped = state.file.dropped();
    state.failures = state.file.failures();
    state.first_failure = state.file.first_failure();
    if (!state.idle()) continue;
    state.changed.notify_all();
    state.hurry.wait_for(lock, kGatherTime, [&] { return state.urgent(); });
  }
  state.asleep = true;
}

std::int64_t LineWriter::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped + state_->overflow;
}

std::int64_t LineWriter::failures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures;
}

Status LineWriter::first_failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->first_failure;
}

std::optional<std::chrono::steady_clock::duration> LineWriter::stalled_for() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->busy_since) return std::nullopt;
  return std::chrono::steady_clock::now() - *state_->busy_since;
}

bool AppendFile::Append(std::string line, Counted counted) {
  if (std::chrono::steady_clock::now() - last_check_ >= kCheckPeriod) ReopenIfRemoved();
  if (!line.ends_with('\n')) line += '\n';
  if (partial_line_) line.insert(line.begin(), '\n');
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(file_.get(), line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // another process made the pipe non-blocking
      pollfd writable{.fd = file_.get(), .events = POLLOUT, .revents = 0};
      (void)::poll(&writable, 1, -1);
      continue;
    }
    if (written == 0) errno = EIO;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  if (done == line.size()) {
    partial_line_ = false;
    if (counted == Counted::kYes) ++since_check_;
    return true;
  }
  Fail(ErrnoStatus("cannot write", path_));
  if (counted == Counted::kYes) ++dropped_;
  partial_line_ = partial_line_ || done > 0;
  return false;
}

void AppendFile::ReopenIfRemoved() {
  last_check_ = std::chrono::steady_clock::now();
  struct stat info {};
  const bool exists = mode_ == kNotAgain || ::fstat(file_.get(), &info) != 0 || info.st_nlink > 0;
  const std::int64_t lines = std::exchange(since_check_, 0);
  if (exists) return;
  dropped_ += lines;
  auto file = OpenFile(path_, O_WRONLY | O_APPEND | O_CREAT, mode_);
  if (!file.ok()) {
    Fail(Status(file.status()).WithContext("the file was removed"));
    return;
  }
  Fail({ErrorKind::kIo, StrCat("'", path_, "' was removed; it is created again")});
  file_ = *std::move(file);
  partial_line_ = false;
}

void AppendFile::Sync() {
  // EINVAL: not a file that can be synced (a pipe).
  if (::fsync(file_.get()) != 0 && errno != EINVAL) Fail(ErrnoStatus("cannot write", path_));
}

void AppendFile::Fail(Status status) {
  if (failures_++ == 0) first_failure_ = std::move(status);
}

}  // namespace gaccd
