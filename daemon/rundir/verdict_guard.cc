#include "daemon/rundir/verdict_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <span>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/rundir/verdict.h"

namespace gaccd {
namespace {

// Longer texts are truncated.
void Copy(std::string_view text, std::span<char> to) {
  const std::size_t size = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), size, to.begin());
  to[size] = '\0';
}

bool IsGone(pid_t process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

// Linux before 5.9 and some containers do not have close_range().
void CloseFrom(unsigned first) {
  if (::close_range(first, ~0U, 0) == 0) return;
  const long most = std::min(::sysconf(_SC_OPEN_MAX), 65'536L);
  for (int fd = static_cast<int>(first); fd < most; ++fd) ::close(fd);
}

}  // namespace

struct VerdictGuard::Shared {
  // Set before `watches`.
  std::array<char, 256> run;
  std::array<char, 128> job;
  std::array<char, 256> host;
  std::array<char, 4096> attempt_dir;
  int attempt;
  bool local;  // gaccd --local-ranks started mpirun
  std::int64_t world;
  unsigned mode;
  std::atomic<bool> watches;
  std::atomic<bool> released;
  std::atomic<std::int64_t> step;
  std::atomic<std::int64_t> samples;
};

std::unique_ptr<VerdictGuard> VerdictGuard::Start(const Environment& environment) {
  const auto rank = environment("OMPI_COMM_WORLD_RANK");
  if (rank.value_or("0") != "0" || (!rank && environment("SLURM_STEP_ID"))) return nullptr;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const shared = new (memory) Shared{};
  shared->local = environment("GACCD_LOCAL_RANKS").has_value();
  const pid_t launcher = ::getppid();
  const pid_t child = ::fork();
  if (child == 0) {
    (void)write_end.Close();  // otherwise Run() would never see its end
    Run(*shared, read_end.get(), launcher);
  }
  if (child < 0) {
    ::munmap(memory, sizeof(Shared));
    return nullptr;
  }
  return std::unique_ptr<VerdictGuard>(new VerdictGuard(shared, std::move(write_end)));
}

VerdictGuard::~VerdictGuard() { Release(); }

void VerdictGuard::Watch(const RunIdentity& who, const std::string& attempt_dir, std::int64_t world,
                         unsigned mode) {
  if (shared_ == nullptr || attempt_dir.size() >= shared_->attempt_dir.size()) return;
  Copy(who.run, shared_->run);
  Copy(who.job, shared_->job);
  Copy(who.host, shared_->host);
  Copy(attempt_dir, shared_->attempt_dir);
  shared_->attempt = who.attempt;
  shared_->world = world;
  shared_->mode = mode;
  shared_->watches.store(true, std::memory_order_release);
}

void VerdictGuard::SetProgress(std::int64_t step, std::int64_t samples) {
  if (shared_ == nullptr) return;
  shared_->step.store(step, std::memory_order_relaxed);
  shared_->samples.store(samples, std::memory_order_relaxed);
}

void VerdictGuard::Release() {
  if (shared_ == nullptr) return;
  shared_->released.store(true);
  (void)alive_.Close();
  ::munmap(shared_, sizeof(Shared));
  shared_ = nullptr;
}

std::string VerdictGuard::AllEnded(const std::string& when, const Shared& shared) {
  const std::string text = StrCat("mpirun and its ranks have ended", when);
  if (shared.local) return StrCat(text, ": gaccd --local-ranks, mpirun or a rank was killed");
  return StrCat(
      text,
      ": mpirun kills them within a second of the first Ctrl-C or SIGTERM, or of the end of a "
      "rank; gaccd train --local-ranks=",
      shared.world, " gives them the time to save");
}

// Runs in the child process.
void VerdictGuard::Run(const Shared& shared, int alive, pid_t launcher) {
  const auto began = std::chrono::steady_clock::now();
  ::setsid();
  ::prctl(PR_SET_NAME, "gaccd-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  // Readers of this run's output must see its end, so close it here.
  ::dup2(alive, STDIN_FILENO);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  CloseFrom(STDERR_FILENO + 1);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  if (shared.released || !shared.watches.load(std::memory_order_acquire)) ::_exit(0);
  for (int i = 0; shared.world > 1 && i < kPatienceSeconds * 10 && !IsGone(launcher); ++i) {
    ::usleep(100'000);
  }
  const bool all_ended = shared.world > 1 && IsGone(launcher);
  const std::string host = shared.host.data();
  const std::string when = StrCat(" after update ", shared.step.load());
  FailureFacts facts;
  if (!all_ended) facts.suspects.push_back({0, host});
  const std::string attempt_dir = shared.attempt_dir.data();
  Verdict verdict =
      MakeVerdict({ErrorKind::kUnavailable,
                   all_ended ? AllEnded(when, shared)
                             : StrCat("rank 0 on ", host, " has ended without a verdict", when)},
                  facts, attempt_dir);
  verdict.dur_s = SecondsSince(began);
  verdict.last_step = shared.step;
  verdict.samples_total = shared.samples;
  ReleaseDiskSpace(attempt_dir);
  const RunIdentity who{shared.run.data(), shared.job.data(), shared.attempt, 0, host};
  [[maybe_unused]] const auto there = WriteVerdictOnce(attempt_dir, who, verdict, shared.mode);
  ::_exit(0);
}

}  // namespace gaccd
