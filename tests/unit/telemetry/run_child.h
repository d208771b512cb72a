// Runs that report into a folder, each in a process of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "collectives/comm/threads.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/telemetry/log.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {

using testing_json::Content;

inline StepRecord StepAt(std::int64_t step, std::int64_t total) {
  StepRecord record;
  record.step = step;
  record.steps_total = total;
  record.samples = 1000;
  record.target = 1000;
  record.samples_total = 1000 * step;
  record.loss = 2.0 / static_cast<double>(step);
  record.grad_norm = 0.5;
  record.lr = 0.01;
  record.dur_s = 0.25;
  return record;
}

inline ReporterOptions Options(const std::string& run_dir) {
  ReporterOptions options;
  options.run_dir = run_dir;
  options.run_name = "fashion";
  options.job_text = "name: \"fashion\"\n";
  options.log_every = 2;
  return options;
}

// A run of five updates and one evaluation.
inline Status FiveSteps(Communicator& comm, const ReporterOptions& options) {
  auto reporter = RunReporter::Start(comm, options);
  if (!reporter.ok()) return reporter.status();
  RunStart start;
  start.version = "0.1.0";
  start.world = comm.size();
  start.flops_per_sample = 50e6;
  start.peak_flops = 1e12;
  start.device = "cpu";
  (*reporter)->Report(start);
  const auto plan = Plan::Make({.nodes = 1, .gpus_per_node = 4, .target_batch = 1000});
  (*reporter)->Report(PlanRecord{*plan, "THE PLAN\n"});
  for (std::int64_t step = 1; step <= 5; ++step) (*reporter)->Report(StepAt(step, 5));
  EvalRecord eval;
  eval.step = 5;
  eval.samples = 10'000;
  eval.divisor = 10'000;
  eval.loss = 0.45;
  eval.metrics = {{"accuracy", 0.8841}};
  (*reporter)->Report(eval);
  LogWarning("look here");
  (*reporter)->Finish(Status::Ok());
  return (*reporter)->close_status();
}

struct Child {
  std::string out;
  int exit = -1;
};

// The text log and stdout belong to the process, so each run is a child; `stdout_fd` is its stdout.
inline int RunChild(int stdout_fd, const std::function<Status()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(stdout_fd, STDOUT_FILENO);
    ::dup2(stdout_fd, STDERR_FILENO);
    const Status status = body();
    if (!status.ok()) dprintf(STDERR_FILENO, "FAILED %s\n", status.message().c_str());
    ::_exit(status.ok() && !testing::Test::HasFailure() ? 0 : 1);
  }
  int result = -1;
  ::waitpid(child, &result, 0);
  return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

inline Child RunIntoFile(const std::string& path, const std::function<Status()>& body) {
  const auto file = OpenFile(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND);
  Child child;
  child.exit = RunChild(file->get(), body);
  child.out = Content(path);
  return child;
}

// The descriptor that this process has of `path` leads to `other` from now on.
inline void ReplaceOpenFile(const std::string& path, int other) {
  const std::string file = std::filesystem::canonical(path);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != file) continue;
    ::dup2(other, std::stoi(entry.path().filename()));
  }
}

// Who writes to it waits for ever: nobody reads, and it is full.
inline int HangingPipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  while (::write(ends[1], "\n", 1) == 1) {
  }
  EXPECT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
  return ends[1];
}

class RunReporterTest : public testing::Test {
 protected:
  RunReporterTest() { ::setenv("TERM", "xterm", 1); }
  [[nodiscard]] std::string Run() const { return dir_.path() + "/run"; }
  [[nodiscard]] std::string Latest() const { return Run() + "/attempts/latest"; }

  TempFolder dir_;
};

inline ThreadGroupOptions TwoNodes() {
  return {.comm = {.bound = std::chrono::seconds(20)}, .ranks_per_node = 2};
}

}  // namespace gaccd
