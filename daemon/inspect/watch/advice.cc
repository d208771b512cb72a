#include "daemon/inspect/watch/advice.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/attempt_verdict.h"
#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._/+:@%-,=").find(c) != std::string_view::npos;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool Mentions(std::string_view reason, std::string_view words) {
  return reason.find(words) != std::string_view::npos;
}

bool IsLocal(const RunState& state) { return state.job.starts_with("local-"); }

// The command that shows whether the job still runs.
std::string CommandForJob(const RunState& state) {
  constexpr std::string_view kLocal = "local-";  // then the process
  if (!IsLocal(state)) return StrCat("squeue --jobs=", ShellWord(state.job));
  return StrCat("ps -p ", ShellWord(std::string_view(state.job).substr(kLocal.size())));
}

// How the run begins when it is started again.
Advice NextStart(const AdviceFacts& facts) {
  if (facts.has_checkpoint) {
    return {"it resumes from its newest checkpoint", "它会从最新的检查点继续"};
  }
  return {"it begins at update 1, as no checkpoint is complete",
          "没有完整的检查点，它会从第 1 次更新开始"};
}

// For a run that is to continue.
Advice Restart(const AdviceFacts& facts, const Advice& next) {
  if (facts.state.gone_in_slurm) {
    return {StrCat("submit it again, unless another job that continues it waits (squeue --me): "
                   "SLURM does not run its job again; ",
                   next.en),
            StrCat("请重新提交，除非已有继续它的作业在排队（squeue --me）：SLURM "
                   "不会再次运行它的作业；",
                   next.zh)};
  }
  if (IsLocal(facts.state) || facts.hold_file) {
    return {StrCat("restart it: ", next.en), StrCat("重新启动：", next.zh)};
  }
  return {StrCat("restart it: ", next.en, "; slurm/launch does so automatically"),
          StrCat("重新启动：", next.zh, "；slurm/launch 会自动这样做")};
}

// Exit code 74: the reason contains the text of strerror().
Advice AfterIoError(std::string_view reason, const Advice& next) {
  if (Mentions(reason, "No such file or directory") || Mentions(reason, "Not a directory")) {
    return {
        "put the missing file where the reason names it, or correct its path in the job or the "
        "flags, then restart",
        "把缺少的文件放到原因所说的位置，或修改作业文件或参数中的路径，然后重新启动"};
  }
  if (Mentions(reason, "Permission denied") || Mentions(reason, "Operation not permitted") ||
      Mentions(reason, "belongs to user")) {
    return {"fix the owner or the permissions of the file named in the reason, then restart",
            "修正原因中所提文件的所有者或权限，然后重新启动"};
  }
  if (Mentions(reason, "No space left") || Mentions(reason, "quota") ||
      Mentions(reason, "is full")) {
    return {StrCat("free space on the disk named in the reason, then restart: ", next.en),
            StrCat("为原因中提到的磁盘腾出空间，然后重新启动：", next.zh)};
  }
  return {"check the file or disk named in the reason, then restart",
          "检查原因中提到的文件或磁盘，然后重新启动"};
}

// The exit codes of srun and shells for a program that is missing or not executable on a node.
bool IsMissingProgram(int exit) { return exit == 2 || exit == 13 || exit == 126 || exit == 127; }

// Advice for an exit code, shown with the reason.
Advice AfterExit(const AdviceFacts& facts, int exit, const std::string& folder) {
  const std::string& reason = facts.state.reason;
  const Advice next = NextStart(facts);
  const Advice memory{"give the job more memory (--mem), or set a smaller --micro-batch",
                      "给作业更多内存 (--mem)，或减小 --micro-batch"};
  if (exit == kOutOfMemoryExit) return memory;
  if (IsMissingProgram(exit)) {
    return {
        StrCat("check that every node has the program; output of the ranks: the folder rank of the "
               "newest attempt in ",
               folder, "/attempts"),
        StrCat("检查每个节点上是否都有该程序；各 rank 的输出：", folder,
               "/attempts 中最新一次尝试的 rank 目录")};
  }
  if (IsSignalExit(exit) && exit != static_cast<int>(ErrorKind::kInterrupted)) {
    const Advice restart = Restart(facts, next);
    return {StrCat("it was killed by a signal; if the kernel was out of memory, ", memory.en,
                   "; otherwise ", restart.en),
            StrCat("它被信号终止；如果是内核因内存不足所为：", memory.zh, "；否则", restart.zh)};
  }
  switch (static_cast<ErrorKind>(exit)) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
      if (Mentions(reason, "no memory for")) return memory;
      if (Mentions(reason, "the checkpoint was written by")) {
        return {"restart with the version of gaccd that wrote the checkpoint (see the reason)",
                "用写入该检查点的 gaccd 版本重新启动（见原因）"};
      }
      return {"correct the flags or the job file (see the reason), then restart",
              "按原因修改命令行参数或作业文件，然后重新启动"};
    case ErrorKind::kData:
      if (Mentions(reason, "checkpoints and none is intact")) {
        return {
            "no checkpoint can be repaired: train anew with --resume=never and another run folder",
            "检查点无法修复：请用 --resume=never 和另一个运行目录重新训练"};
      }
      return {StrCat("repair the file named in the reason; for a checkpoint: gaccd ckpt verify ",
                     folder),
              StrCat("修复原因中提到的文件；如果是检查点：gaccd ckpt verify ", folder)};
    case ErrorKind::kInternal:
      return {"this is a bug in gaccd: please report it and attach the run folder",
              "这是 gaccd 的缺陷：请连同运行目录一起报告"};
    case ErrorKind::kIo:
      return AfterIoError(reason, next);
    case ErrorKind::kUnavailable: {
      const Advice restart = Restart(facts, next);
      if (!Mentions(reason, "did not enter")) return restart;
      // A rank may compute for longer than the others wait.
      return {StrCat(restart.en,
                     "; if it ends in the same way, the rank may only be slow: set a "
                     "larger --bound, or a smaller --micro-batch"),
              StrCat(restart.zh,
                     "；如果再次这样结束，该 rank 可能只是慢：请增大 --bound，"
                     "或减小 --micro-batch")};
    }
    case ErrorKind::kOs:
    case ErrorKind::kTempFail:
      return Restart(facts, next);
    case ErrorKind::kNoRequeue:
      if (!StoppedByFile(exit, reason)) break;
      [[fallthrough]];
    case ErrorKind::kInterrupted:
      return {StrCat("restart it to continue: ", next.en), StrCat("需要继续时重新启动：", next.zh)};
  }
  return {"restarting unchanged would fail the same way: fix the cause named in the reason first",
          "原样重新启动会再次这样结束：请先改变原因中提到的内容"};
}

Advice AdviseLiveRun(const AdviceFacts& facts, const std::string& folder) {
  const RunState& state = facts.state;
  constexpr double kStill = 60;  // seconds, or kUpdates updates if these are longer
  constexpr double kUpdates = 10;
  if (state.no_rank_yet) {
    const std::string command = CommandForJob(state);
    return {StrCat("wait a minute: the job has started and its ranks are starting; to check that "
                   "it still runs: ",
                   command),
            StrCat("先等一分钟：作业已开始，各 rank 正在启动；查看是否仍在运行：", command)};
  }
  if (state.failed_saves > 0) {
    return {
        "free space for its checkpoints: the last saves failed, and the run ends after a few more",
        "为检查点腾出空间：最近几次保存失败，再失败它就会结束"};
  }
  if (state.failed_writes > 0) {
    return {StrCat("check the free space on the disk of the run folder: ", state.failed_writes,
                   " writes failed; training continues"),
            StrCat("检查运行目录所在磁盘是否有空间：写入失败 ", state.failed_writes,
                   " 次；训练仍在继续")};
  }
  const double still = std::max(kStill, kUpdates * state.dur_p50_s.value_or(0));
  if (state.step_age_s.value_or(0) > still) {
    const std::string age = DurationText(*state.step_age_s);
    return {StrCat("its last update ended ", age,
                   " ago; to see what the ranks do: gaccd logs --follow ", folder),
            StrCat("上一次更新结束于 ", age, " 之前；查看各 rank 在做什么：gaccd logs --follow ",
                   folder)};
  }
  // Without an update there is no step_age_s.
  const double late = std::chrono::duration<double>(kStartLimit).count();
  if (state.phase == RunPhase::kStarting && facts.attempt_age_s > late) {
    const std::string age = DurationText(facts.attempt_age_s);
    return {
        StrCat("it began ", age, " ago and has made no update; to see what the ranks do: gaccd ",
               "logs --follow ", folder),
        StrCat("它在 ", age, " 之前开始，还没有完成更新；查看各 rank 在做什么：gaccd ",
               "logs --follow ", folder)};
  }
  if (facts.disk_full) {
    return {"it is running; its events, logs and checkpoints are lost until then",
            "正在运行；在此之前，它的事件、日志和检查点会丢失"};
  }
  return {"nothing to do: it is running", "无需操作：正在运行"};
}

Advice AdviseSilentRanks(const RunState& state) {
  const std::string job = ShellWord(state.job);
  const std::string said = ShellWord(StrCat(state.folder, "/attempts/", state.attempt, "/rank"));
  const std::string command = CommandForJob(state);
  return {StrCat("check whether job ", job, " still runs: ", command, "; output of its ranks: ls ",
                 said),
          StrCat("检查作业 ", job, " 是否仍在运行：", command, "；各 rank 的输出：ls ", said)};
}

// A job that SLURM does not run until somebody tells it to: "job 17 is PENDING (JobHeldUser)".
std::optional<Advice> AdviseForPausedJob(const RunState& state) {
  const std::string& slurm = state.slurm;
  const bool held = Mentions(slurm, "Held") || Mentions(slurm, "_held") ||
                    Mentions(slurm, "SPECIAL_EXIT") || Mentions(slurm, "REQUEUE_HOLD");
  const bool suspended = Mentions(slurm, "is SUSPENDED");
  if (!held && !suspended) return std::nullopt;
  constexpr std::size_t kId = std::string_view("job ").size();
  const std::string id = slurm.substr(kId, slurm.find(' ', kId) - kId);
  const std::string command = StrCat("scontrol ", suspended ? "resume " : "release ", id);
  return Advice{
      StrCat("SLURM waits for a command: ", slurm, "; to continue: ", command,
             "; to end it: scancel ", id),
      StrCat("SLURM 在等待命令：", slurm, "；继续运行：", command, "；结束作业：scancel ", id)};
}

// For a job that ended according to SLURM, without a reason in its files.
Advice AdviseWithoutVerdict(const std::string& folder) {
  return {StrCat("read the output of its script, the newest slurm-*.out in ", folder,
                 "; then restart it: it resumes from its newest checkpoint, if there is one"),
          StrCat("查看脚本输出：", folder,
                 " 中最新的 slurm-*.out；然后重新启动：有检查点时从最新的继续")};
}

// Advice for the phase, without files and suspects.
Advice AdviseForPhase(const AdviceFacts& facts, const std::string& folder) {
  const RunState& state = facts.state;
  switch (state.phase) {
    case RunPhase::kSubmitted:
      if (const auto paused = AdviseForPausedJob(state)) return *paused;
      if (!state.slurm.empty()) {
        return {StrCat("nothing to do while it waits for SLURM: ", state.slurm),
                StrCat("等待 SLURM 期间无需操作：", state.slurm)};
      }
      return {
          StrCat("nothing to do while it waits for SLURM; for the cause: squeue --jobs=",
                 state.submitted, "; if the job is not listed it was cancelled: submit it again"),
          StrCat("等待 SLURM 期间无需操作；等待原因：squeue --jobs=", state.submitted,
                 "；如果没有这个作业，它已被取消：请重新提交")};
    case RunPhase::kStarting:
    case RunPhase::kRunning:
      return AdviseLiveRun(facts, folder);
    case RunPhase::kStale: {
      if (const auto paused = AdviseForPausedJob(state)) return *paused;
      if (state.no_rank_yet) return AdviseSilentRanks(state);
      const std::string age = DurationText(state.age_s);
      return {StrCat("check whether host ", state.host, " and job ", state.job,
                     " are still alive: rank 0 has written nothing for ", age),
              StrCat("检查主机 ", state.host, " 和作业 ", state.job, " 是否仍在：rank 0 已有 ", age,
                     " 没有写入")};
    }
    case RunPhase::kDone:
      return {"nothing to do: the training is complete", "无需操作：训练已完成"};
    case RunPhase::kStopped:
    case RunPhase::kFailed:
      break;
  }
  if (!state.exit) return AdviseWithoutVerdict(folder);
  return AfterExit(facts, *state.exit, folder);
}

}  // namespace

std::string ShellWord(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, IsPlain)) return std::string(text);
  const bool escapes = std::ranges::any_of(text, IsControl);
  std::string word = escapes ? "$'" : "'";
  for (const char c : text) {
    if (c == '\'') {
      word += escapes ? "\\'" : "'\\''";
    } else if (escapes && (IsControl(c) || c == '\\')) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      word += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::vector<Advice> Advise(const AdviceFacts& facts) {
  const RunState& state = facts.state;
  std::vector<Advice> advice;
  if (facts.stop_file && state.phase != RunPhase::kDone) {
    const std::string file = ShellWord(state.folder + "/STOP");
    advice.push_back({StrCat("it does not start while the file STOP exists: rm ", file),
                      StrCat("文件 STOP 存在时不会启动：rm ", file)});
  }
  if (facts.hold_file && state.phase != RunPhase::kDone) {
    const std::string file = ShellWord(state.folder + "/HOLD");
    advice.push_back(
        {StrCat("it does not start while the file HOLD exists, which says why; once the cause is "
                "fixed: rm ",
                file),
         StrCat("文件 HOLD 存在时不会启动，其中写明原因；原因消除后：rm ", file)});
  }
  if (facts.disk_full) {
    const std::string folder = ShellWord(state.folder);
    advice.push_back(
        {StrCat("the disk of ", folder, " is full (df -h, df -i): free space there first"),
         StrCat(folder, " 所在的磁盘已满（df -h、df -i）：请先腾出空间")});
  }
  // It may be so on this machine alone, on purpose.
  const bool alive = state.phase == RunPhase::kStarting || state.phase == RunPhase::kRunning;
  if (facts.disk_read_only && !alive && state.phase != RunPhase::kDone) {
    const std::string folder = ShellWord(state.folder);
    advice.push_back(
        {StrCat("the disk of ", folder, " is read-only on this machine: if it is so on ",
                "the nodes, make it writable first"),
         StrCat(folder, " 所在的磁盘在本机为只读：如果节点上也是，请先使其可写")});
  }
  const bool ended = state.phase == RunPhase::kStopped || state.phase == RunPhase::kFailed;
  const auto paused = ended ? AdviseForPausedJob(state) : std::nullopt;
  // A job that is held after 93 needs a correction first; any other one continues as it is.
  const bool needs_correction = state.exit == static_cast<int>(ErrorKind::kNoRequeue);
  if (!(ended && facts.stop_file) && (!paused || needs_correction)) {
    advice.push_back(AdviseForPhase(facts, ShellWord(state.folder)));
  }
  if (paused) advice.push_back(*paused);
  if (!state.suspect_hosts.empty() && !IsLocal(state)) {  // a SLURM job
    advice.push_back({StrCat("without the suspected hosts: sbatch --exclude=", state.suspect_hosts),
                      StrCat("避开可疑主机：sbatch --exclude=", state.suspect_hosts)});
  }
  return advice;
}

}  // namespace gaccd
