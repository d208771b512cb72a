#include "daemon/config/help.h"

#include <string_view>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::string_view kOverview =
    R"(gaccd trains a neural network on a SLURM cluster with an exact batch.

  gaccd <verb> [--flag=value ...]

  plan      print who takes how many samples; reads the job, touches nothing
  train     train the job; one process per GPU or core, by srun or mpirun
  selftest  prove on this machine that accumulation equals one big batch
  check     what every rank runs on, and whether the ranks can work together
  ckpt      list, verify, thin out and export checkpoints
  verdict   say what the job script does after a run: requeue it or not
  help      explain a verb: gaccd help plan
  version   print the versions of gaccd and its libraries

Without a verb: train inside a SLURM step or under mpirun, plan elsewhere.

  gaccd --nodes 30 --target-batch 3072
  srun --mpi=pmix gaccd train --job=job.txtpb --run-dir=runs/a

--flagfile=FILE reads flags from a file, one a line; dashes and underscores in
the names of flags are equal.

Exit codes: 0 done, 64 usage, 65 data, 69 a peer is lost, 70 internal,
71 system, 74 input/output, 75 stopped, to be requeued, 78 configuration,
93 failed for good or stopped by the file STOP, 130 Ctrl-C twice.
)";

constexpr std::string_view kClusterFlags = R"(
The cluster
  --nodes=N            nodes (plan: default 1)
  --gpus-per-node=N    ranks on each node (plan: default 8)
                       When training, both must agree with SLURM and MPI.
)";

constexpr std::string_view kBatchFlags = R"(
The batch; each wins over the job
  --target-batch=N     samples of one update, over all ranks
  --micro-batch=N      the most samples a rank holds at once (default 10)
  --rounding=MODE      exact (default), floor, ceil or nearest
  --strict             exit 78 unless the plan is exact
  --lr-rule=RULE       none (default), linear or sqrt, of effective / reference
  --reference-batch=N  the batch of the job's learning rate (default: target)
  --last-cycle=POLICY  what happens to the samples left at the end of an epoch:
                       update (default; one smaller, exact update), carry (into
                       the next epoch) or drop
)";

constexpr std::string_view kDeviceFlags = R"(
The devices; all but --allow-gpu-sharing win over the job
  --device=DEVICE      auto (default: GPUs if every rank has one, CPUs if none
                       has, an error otherwise), cpu or cuda
  --precision=TYPE     f32 (default) or bf16 (on GPUs; weights, sums stay f32)
  --tf32               products of f32 may round their inputs to TF32 (on GPUs)
  --deterministic      the same bits from run to run, also where it is slower
  --allow-gpu-sharing  several ranks may use one GPU; for tests, slow
)";

constexpr std::string_view kPlanUsage = R"(gaccd plan [--flag=value ...]

Prints how many samples every rank takes in every micro-step of an update, the
learning rate's factor, and what would make the target divide.

  --job=FILE           take the batch from a job text
  --format=FORMAT      text (default), json (one line) or txtpb
)";

constexpr std::string_view kTrainUsage = R"(gaccd train --job=FILE [--flag=value ...]

Trains the job, one process per rank:
  srun --mpi=pmix --kill-on-bad-exit=1 gaccd train --job=FILE --run-dir=DIR

  --job=FILE           the job text (proto/job.proto); --config is the same
  --run-dir=DIR        where logs, events and results go
  --epochs=N           passes over the data (job: epochs)
  --max-updates=N      stop after so many updates; 0 = no limit
  --seed=N             of the initial weights and the sample order (default 1)
  --log-every=N        updates between two log lines (default 100)
  --init-weights=FILE  start from these safetensors
  --save-weights=FILE  write safetensors at the end
  --bound=SECONDS      end the run when a rank is silent so long (default 60)
  --heartbeat-seconds=N  a rank that sends no heartbeat for N seconds is lost
                       (default 5); 0: none are sent
)";

constexpr std::string_view kCheckpointFlags = R"(
Checkpoints, in DIR/ckpt of --run-dir=DIR; also when it stops and at the end
  --save-every-seconds=N   save when N seconds passed (default 600); 0: not by
                           time
  --save-every-updates=N   save every N updates; 0 (default): not by updates.
                           Both 0: no checkpoints at all
  --resume=HOW             auto (default): go on from the newest checkpoint that
                           is whole, if there is one; never: start anew; or the
                           path of a checkpoint, which must be whole, or of a
                           run folder. Where the job was requeued it goes on
                           from its own newest checkpoint, whatever this says
  --keep=N                 keep the newest N (default 3)
  --keep-every=N           and one of each N updates; 0 (default): none
  --failed-saves=N         exit 74 after N failed saves in a row (default 3)
  --group-access           the group may read them
)";

constexpr std::string_view kFaultFlags = R"(
Stopping, and what can go wrong
  --stop-signals=LIST  signals that save, if there is time, and leave with exit
                       75, to be requeued (default USR1,USR2,TERM; also ALRM,
                       XCPU). A second one leaves without saving. SIGHUP saves
                       and goes on. Files STOP and SAVE in DIR of --run-dir do
                       the same; STOP exits 93, not to be requeued.
  --term-budget=N      seconds that are counted on after SIGTERM (default 25)
  --on-nonfinite=HOW   a loss or gradient is not finite: stop (default, exit
                       93), skip-update, or drop-micro-batch
  --on-bad-record=HOW  a record of the data is damaged: stop (default, exit 65)
                       or skip: another one takes its place; the evaluation
                       leaves it out
  --bad-record-quota=N at most N records are skipped (default 100)
  --digest-every=N     compare the replicas every N updates (default 100); 0: do
                       not
)";

constexpr std::string_view kVerdictUsage = R"(gaccd verdict --attempt-dir=DIR [--srun-rc=N]

For the job script, after srun: prints one word, what to do with the job.
  done       the training is complete
  requeue    start it again: it was stopped, or a node or a peer was lost
  norequeue  starting it again would fail again, or the file STOP is there
  fail       an error that a person must look at
Then, on a line each, the reason and, when hosts are suspected, the --exclude=
that leaves them out. Exits 0.

  --attempt-dir=DIR    the attempt's folder: RUN-DIR/attempts/NNN-JOB
  --srun-rc=N          what srun returned; nothing: the node of the job script
                       was lost before that, and the next attempt asks
)";

constexpr std::string_view kCkptUsage = R"(gaccd ckpt ACTION PATH [--flag=value ...]

Looks after checkpoints. PATH is a run folder, or one checkpoint in its ckpt.

  gaccd ckpt ls PATH       what there is, newest first
  gaccd ckpt verify PATH   read every byte; exit 65 if something is damaged
  gaccd ckpt prune PATH    all but the newest --keep=N (default 3) and one
                           of each --keep-every=N updates go (default 0)
  gaccd ckpt export PATH --out=FILE
                           write the newest weights that are whole, safetensors
)";

constexpr std::string_view kCheckUsage = R"(gaccd check [--flag=value ...]

Prints what every rank finds: host, GPU, libraries, cores, limits. Start it the
way the training will be started:
  srun --mpi=pmix gaccd check

Exits 78, naming the ranks, when they cannot work together: different builds of
gaccd or its libraries, ranks with and without a GPU, fewer GPUs than tasks on a
node, two ranks on one GPU. Prints warnings for what is slow.

  --format=FORMAT      text (default; many equal lines are put together) or json
                       (one line a rank)
  --device=cpu         the GPUs do not matter
  --allow-gpu-sharing  two ranks on one GPU are wanted
  --bound=SECONDS      give up when a rank is silent so long (default 60)
)";

constexpr std::string_view kSelftestUsage = R"(gaccd selftest [--flag=value ...]

Takes one gradient with different data on every rank, ranks as threads of this
process, and checks that ragged micro-steps equal one big batch on one rank, for
every rounding.

  --nodes=N          default 1
  --gpus-per-node=N  ranks of a node (default 8)
  --micro-batch=N    the most samples a rank holds at once (default 10)
  --target-batch=N   samples over all ranks (default: 32 / 25 of one micro-batch
                     on every rank)
)";

constexpr std::string_view kVersionUsage = R"(gaccd version

Prints the versions of gaccd and its libraries: loaded, and compiled with.
A library older than the one compiled with is refused where it is used.
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
