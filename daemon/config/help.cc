#include "daemon/config/help.h"

#include <string_view>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::string_view kOverview =
    R"(gaccd trains a neural network on a SLURM cluster with an exact batch.

  gaccd <verb> [--flag=value ...]

  plan      print how many samples each rank takes; reads only the job text
  train     train the job; one process per GPU or core, by srun or mpirun
  selftest  prove on this machine that accumulation equals one big batch
  check     print what every rank runs on, and whether the ranks fit together
  ckpt      list, verify, prune and export checkpoints
  verdict   print whether the job script should requeue the job after a run
  help      explain a verb: gaccd help plan
  version   print the versions of gaccd and its libraries

Without a verb, the verb is train inside a SLURM step or under mpirun, and plan
elsewhere. Without any argument outside of both, gaccd prints this text.

  gaccd --nodes 30 --target-batch 3072
  srun --mpi=pmix gaccd train --job=job.txtpb --run-dir=runs/a
  mpirun -n 4 gaccd train --job=job.txtpb --run-dir=runs/a

--flagfile=FILE reads flags from a file, one per line; in it, flags of other
verbs are ignored. Dashes and underscores in flag names are equivalent.

Exit codes: 0 done, 64 usage, 65 data, 69 a peer is lost, 70 internal,
71 system, 74 input/output (also when the reader of the output closes the pipe),
75 stopped, to be requeued, 78 configuration, 93 failed for good or stopped by
the file STOP, 130 Ctrl-C twice.
)";

constexpr std::string_view kClusterFlags = R"(
The cluster
  --nodes=N            nodes (plan: default 1)
  --gpus-per-node=N    ranks on each node (plan: default 8)
                       When training, both must agree with SLURM and MPI.
)";

constexpr std::string_view kBatchFlags = R"(
The batch; each flag overrides the job
  --target-batch=N     samples of one update, over all ranks
  --micro-batch=N      the most samples a rank processes at once (default 10)
  --rounding=MODE      exact (default), floor, ceil or nearest
  --strict             exit 78 unless the plan is exact
  --lr-rule=RULE       none (default), linear or sqrt, of effective / reference
  --reference-batch=N  the batch of the job's learning rate (default: target)
  --last-cycle=POLICY  what happens to the samples left at the end of an epoch:
                       update (default; one smaller, exact update), carry (into
                       the next epoch) or drop
)";

constexpr std::string_view kDeviceFlags = R"(
The devices; each flag but the last two overrides the job
  --device=DEVICE      auto (default: GPUs if every rank has one, CPUs if none
                       has, an error otherwise), cpu or cuda
  --precision=TYPE     f32 (default) or bf16 (on GPUs; weights, sums stay f32)
  --tf32               products of f32 may round their inputs to TF32 (on GPUs)
  --deterministic      the same bits in every run, also where that is slower
  --allow-gpu-sharing  several ranks may use one GPU; for tests, slow
  --time-algorithms    time cuBLASLt's algorithms of each matrix product at the
                       start, and keep the fastest for later runs
)";

constexpr std::string_view kPlanUsage = R"(gaccd plan [--flag=value ...]

Prints how many samples each rank takes in each micro-step of an update, the
factor of the learning rate, and which changes would make the target divide.

  --job=FILE           take the batch from a job text
  --format=FORMAT      text (default), json (one line, the keys of
                       proto/plan.proto) or txtpb
)";

constexpr std::string_view kTrainUsage = R"(gaccd train --job=FILE [--flag=value ...]

Trains the job, one process per rank:
  srun --mpi=pmix --kill-on-bad-exit=1 gaccd train --job=FILE --run-dir=DIR

  --job=FILE           the job text (proto/job.proto); --config is the same.
                       A relative path in it starts at the current folder, or,
                       where that file does not exist, at the folder of FILE
  --run-dir=DIR        folder for logs, events, checkpoints and results; a
                       complete run in it trains on with more --epochs
  --epochs=N           passes over the data (job: epochs)
  --max-updates=N      stop after N updates; 0 = no limit
  --seed=N             of the initial weights and the sample order (default 1)
  --log-every=N        a log line every N updates (default 100), at least every
                       10 s, and at the last update
  --init-weights=FILE  start from the weights in this safetensors file
  --save-weights=FILE  write the weights at the end, as safetensors
  --bound=SECONDS      end the run when a rank is silent that long (default 60)
  --heartbeat-seconds=N  a rank that sends no heartbeat for N seconds is lost
                       (default 5); 0: no heartbeats
)";

constexpr std::string_view kCheckpointFlags = R"(
Checkpoints, in DIR/ckpt of --run-dir=DIR; also at a stop and at the end
  --save-every-seconds=N   save every N seconds (default 600); 0: not by time
  --save-every-updates=N   save every N updates; 0 (default): not by updates.
                           Both 0: no checkpoints at all
  --resume=HOW             auto (default): resume from the newest checkpoint
                           that is complete, if there is one; never: start
                           anew; or the path of a run folder or of a checkpoint,
                           which must be complete. A requeued job resumes from
                           its own newest checkpoint, whatever this flag says
  --keep=N                 keep the newest N (default 3)
  --keep-every=N           also keep one of every N updates; 0 (default): none
  --failed-saves=N         exit 74 after N failed saves in a row (default 3)
  --group-access           the group may read the run folder and checkpoints
)";

constexpr std::string_view kFaultFlags = R"(
Stopping and errors
  --stop-signals=LIST  signals that stop the run: it saves, if there is time,
                       and exits 75, to be requeued (default USR1,USR2,TERM;
                       also ALRM, XCPU). A second one exits without a save.
                       SIGHUP saves, and training continues. The files STOP
                       and SAVE in DIR of --run-dir do the same; STOP exits 93,
                       not to be requeued.
  --term-budget=N      seconds from SIGTERM to the expected SIGKILL (default 25)
  --on-nonfinite=HOW   a loss or gradient is not finite: stop (default, exit
                       93), skip-update, or drop-micro-batch
  --on-bad-record=HOW  a record of the data is damaged: stop (default, exit 65)
                       or skip: training replaces it by another record,
                       evaluation leaves it out
  --bad-record-quota=N skip at most N records (default 100)
  --digest-every=N     compare the replicas every N updates (default 100); 0:
                       never
)";

constexpr std::string_view kVerdictUsage = R"(gaccd verdict --attempt-dir=DIR [--flag=value ...]

For the job script, after srun: prints one word, what to do with the job.
  done       the training is complete
  requeue    start it again: it was stopped, or a node or a peer was lost
  norequeue  it would fail again, or the file STOP exists
  fail       an error that a person must look at
The next line is the reason. When hosts are suspected, a third line is the
--exclude= flag for sbatch. Exits 0.

  --attempt-dir=DIR    the attempt's folder: RUN-DIR/attempts/NNN-JOB
  --srun-rc=N          exit code of srun; leave it out when the node of the job
                       script was lost before srun returned
  --format=FORMAT      text (default), or json: one line with attempt, verdict
                       (the word above), exit (the exit code of the run), held
                       (restarts did not help), reason, suspect_hosts
)";

constexpr std::string_view kCkptUsage = R"(gaccd ckpt ACTION PATH [--flag=value ...]

Manages checkpoints. PATH is a run folder, or one checkpoint in its ckpt.

  gaccd ckpt ls PATH       list them, newest first, with the names and sizes of
                           their files checked; only verify reads the bytes
  gaccd ckpt verify PATH   read every byte; exit 65 if a checkpoint is damaged
  gaccd ckpt prune PATH    remove all but the newest --keep=N (default 3) that
                           are intact, which reads their bytes, and one of
                           every --keep-every=N updates (default 0: none)
  gaccd ckpt export PATH --out=FILE
                           write the weights of the newest checkpoint that is
                           intact, as safetensors; --group-access: the group
                           may read FILE

  --format=FORMAT          of ls and verify: text (default), or json: one line a
                           checkpoint with generation, step, micro_step,
                           writer_epoch and state (ls: complete, damaged or
                           unfinished; verify: ok, damaged or unfinished); where
                           known also ranks, bytes, created (ls) and reason
)";

constexpr std::string_view kCheckUsage = R"(gaccd check [--flag=value ...]

Prints what every rank finds: host, GPU, libraries, cores, limits. Start it as
the training will be started:
  srun --mpi=pmix gaccd check

Exits 78 and names the ranks when they cannot work together: different builds of
gaccd or its libraries, ranks with and without a GPU, fewer GPUs than tasks on a
node, two ranks on one GPU. Prints warnings for what is slow.

  --format=FORMAT      text (default; ranks that are alike share a line) or json
                       (one line a rank)
  --device=cpu         do not check the GPUs
  --allow-gpu-sharing  two ranks may use one GPU
  --bound=SECONDS      give up when a rank is silent that long (default 60)
)";

constexpr std::string_view kSelftestUsage = R"(gaccd selftest [--flag=value ...]

Runs all ranks as threads of this process, each with its own data, and checks
that the gradient of uneven micro-batches equals that of one big batch on one
rank, in every rounding mode. It also makes two common mistakes on purpose and
checks that the comparison detects them.

  --nodes=N          default 1
  --gpus-per-node=N  ranks on each node (default 8)
  --micro-batch=N    the most samples a rank processes at once (default 10)
  --target-batch=N   samples over all ranks (default: 32 / 25 of one micro-batch
                     on every rank)
  --format=FORMAT    text (default), or json: one line per rounding mode with
                     mode, nodes, gpus_per_node, micro_batch, target_batch,
                     eff_batch, accum_steps, deviation (of gaccd's gradient),
                     mean_of_means and last_micro_batch_only (deviations of the
                     two mistakes; null where a mistake has no effect), passed
)";

constexpr std::string_view kVersionUsage = R"(gaccd version

Prints the versions of gaccd and its libraries: the one that is loaded and the
one gaccd was compiled with. A loaded library that is older is refused when it
is used.
)";

}  // namespace

std::string HelpText(std::optional<Verb> topic) {
  if (topic == Verb::kPlan) return StrCat(kPlanUsage, kClusterFlags, kBatchFlags, kDeviceFlags);
  if (topic == Verb::kTrain) {
    return StrCat(kTrainUsage, kCheckpointFlags, kFaultFlags, kClusterFlags, kBatchFlags,
                  kDeviceFlags);
  }
  if (topic == Verb::kCkpt) return std::string(kCkptUsage);
  if (topic == Verb::kVerdict) return std::string(kVerdictUsage);
  if (topic == Verb::kCheck) return std::string(kCheckUsage);
  if (topic == Verb::kSelftest) return std::string(kSelftestUsage);
  if (topic == Verb::kVersion) return std::string(kVersionUsage);
  return std::string(kOverview);
}

}  // namespace gaccd
