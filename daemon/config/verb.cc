#include "daemon/config/verb.h"

#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxSbatchWords = 1000;

constexpr VerbArguments kFlagsOnly{};
constexpr VerbArguments kRunFolder{.words = 1};
constexpr VerbArguments kTextOrJson{.last_format = OutputFormat::kJson};
constexpr VerbArguments kRunFolderTextOrJson{.words = 1, .last_format = OutputFormat::kJson};

constexpr VerbRow kVerbs[] = {
    {Verb::kPlan,
     "plan",
     "print how many samples each rank takes, and what a run needs",
     {.last_format = OutputFormat::kTxtpb, .flags_of_train = true},
     R"([--flag=value ...]

Prints how many samples each rank takes in each micro-step of an update, the
factor of the learning rate, and changes with which the ranks share the target
evenly. With --job=FILE it reads the headers of the data and also prints the
updates of an epoch, which parameters have weight decay, and the memory of a
rank. --micro-batch=auto --memory=80GB selects the largest micro-batch that fits
on a rank, and prints the memory of others.
--format=json has the keys of proto/plan.proto; with --ranks a line per rank
follows: rank, first (samples of the ranks before it), samples, micro_batches
(sizes). Flags of train are accepted.
)"},
    {Verb::kTrain, "train", "train the job; one process per GPU or core, by srun or --local-ranks",
     kFlagsOnly,
     R"(--job=FILE [--flag=value ...]

Trains the job, one process per rank:
  srun --mpi=pmix --kill-on-bad-exit=1 gaccd train --job=FILE --run-dir=DIR
  gaccd train --local-ranks=4 --job=FILE --run-dir=DIR       on this machine

Checkpoints are saved in DIR/ckpt of --run-dir=DIR every 600 s, at a stop and at
the end. Flags override the job file. Its fields: gaccd help job.
)"},
    {Verb::kSubmit,
     "submit",
     "submit a training to SLURM, with a script that is kept",
     {.words = kMaxSbatchWords, .last_format = OutputFormat::kJson, .flags_of_train = true},
     R"(--job=FILE --run=NAME [--flag=value ...] [-- SBATCH-FLAG ...]

Plans the training, writes the job and a script for sbatch into the run folder,
prints the script and submits it:
  gaccd submit --nodes 30 --target-batch 3072 --job=job.txtpb --run=r50 \
      --time=24:00:00 -- --mem=0 --exclusive

Flags of train are accepted and passed on; arguments after `--` are passed to
sbatch. The script can be submitted again: sbatch runs/r50/submit.sbatch. The
job is requeued if that helps (gaccd help verdict). SLURM signals the end of its
time limit early enough for a save; this time is computed from the updates and
saves in earlier attempts of the run. A job that cannot train with its data is
refused. Warnings are printed for what would fail when the job starts: missing
data and weights; nodes, time or memory that SLURM can never grant.
--format=json: one line per run with folder, jobs (ids, separated by commas),
script.
)"},
    {Verb::kEval, "eval", "evaluate trained weights", kTextOrJson,
     R"(--job=FILE --weights=PATH [--flag=value ...]

Prints the loss and the metrics of the job over its evaluation data, with the
weights of a safetensors file, a checkpoint, or the newest intact checkpoint of
a run folder. If the run has optimizer.ema, it uses the average of the weights,
unless --raw-weights is set. Runs on any number of ranks, like train:
  srun --mpi=pmix gaccd eval --job=FILE --weights=DIR

To evaluate other data of the same kind: --set data.eval.npy.features=FILE and
so on. Writes nothing. --format=json: one line with job, weights, step (of a
checkpoint), device, world, samples, left_out (damaged ones), divisor, unit,
loss, dur_s, and each metric under its name.
)"},
    {Verb::kPredict, "predict", "write the model's prediction for every sample", kFlagsOnly,
     R"(--job=FILE --weights=PATH --out=FILE [--flag=value ...]

Writes the prediction of a trained model for every sample of the evaluation data
of the job, in order, with the weights of a safetensors file, a checkpoint, or
the newest intact checkpoint of a run folder. If the run has optimizer.ema, it
uses the average of the weights, unless --raw-weights is set. Runs on any number
of ranks, like train; all of them must see the folder of --out. Labels are
ignored and may be absent: a job may have `tokens` without labels, or `arrays`
of features only.

  --what=logits      output of the last layer: a row for each sample, or for
                     each of its tokens; with mean_squared_error the prediction,
                     with the loss output that of each sample
  --what=classes     the class with the largest logit
  --what=embeddings  bert: the mean of the last hidden states of the text, of
                     length 1; dual_encoder: both representations side by side

--out=FILE.npy is a NumPy array, f32 or (classes) i32; --out=FILE.jsonl has a
line for each sample: {"sample":0,"logits":[0.5,-1.25]}, with mean_squared_error
{"sample":0,"prediction":[0.5]}, with output {"sample":0,"loss":0.5}; or
{"sample":0,"class":1,"name":"dog"}, with the name where classes have names.
)"},
    {Verb::kSamples,
     "samples",
     "print which samples each rank takes in each update",
     {.last_format = OutputFormat::kJson, .flags_of_train = true},
     R"(--dataset-size=N [--flag=value ...]

Prints, for updates of a run, which samples each rank takes in each micro-step:
their positions in the data set, from 0, in the order of training. With
--job=FILE batch, seed, order and epochs are those of the job, and so is the
data set unless --dataset-size is given. Flags of train are accepted.
  gaccd samples --dataset-size=50000 --target-batch=3072 --nodes=30 --seed=1 \
      --first-update=17 --updates=1 --rank=4

A rank that groups texts by length (--group-by-length) takes the samples of an
update in another order. --format=json: one line per update and rank with
update, updates (of the run), epoch, epoch_end, update_samples, rank,
micro_batches (sizes) and samples.
)"},
    {Verb::kData,
     "data",
     "show a sample of image files as the model sees it",
     {.words = 1, .actions = "show", .flags_of_train = true},
     R"(show --job=FILE --sample=N [--epoch=N] [--flag=value ...]

Writes an image of data.train as PNG, cropped, resized and augmented as in that
epoch of the training, on any number of ranks, and prints the random parameters.
The default of --out is sample-N-epoch-N.png. Flags of train are accepted.
  gaccd data show --job=job.txtpb --sample=17 --epoch=3
)"},
    {Verb::kSelftest, "selftest", "prove on this machine that accumulation equals one big batch",
     kTextOrJson,
     R"([--flag=value ...]

Runs all ranks as threads of this process, each with its own data, and checks
that the gradient of uneven micro-batches equals that of one big batch on one
rank, in every rounding mode. It also makes three common mistakes on purpose and
checks that the comparison detects them. With --job=FILE it does this for the
first update of that job: its own model, data, loss and batch, and the mistakes
that its loss, its batch norms, --shard or --pipeline allow. Exits with 70 if a
gradient is wrong, or a mistake is not detected.

Without --target-batch the target is 32 / 25 of one micro-batch on every rank.
--format=json: one line per rounding mode with mode, nodes, gpus_per_node,
micro_batch, target_batch, effective_batch, accum_steps, deviation (of gaccd's
gradient), mean_of_means and last_micro_batch_only (deviations of two mistakes;
null where a mistake has no effect), tokens_deviation and mean_of_rank_means
(gradient and mistake where the loss counts tokens), passed. With --job=FILE:
one line per mistake with mistake and deviation, then one with effective_batch,
accum_steps, ranks, deviation, rounding (what the order of sums costs), passed.
)"},
    {Verb::kCheck,
     "check",
     "print each rank's environment and check that they are compatible",
     {.last_format = OutputFormat::kJson, .flags_of_train = true},
     R"([--job=FILE] [--flag=value ...]

Prints the environment of every rank: host, GPU, libraries, cores, limits. Start
it in the same way as the training:
  srun --mpi=pmix gaccd check

Exits with 78 and names the ranks if they cannot work together: different builds
of gaccd or its libraries, ranks with and without a GPU, no GPU for
--device=cuda, fewer GPUs than tasks on a node, two ranks on one GPU. Prints
warnings for slow settings. In the text, equal ranks share a line; --format=json
prints one line per rank. It accepts the command line of a training, and only
uses its device: with cpu, GPUs are not checked.
)"},
    {Verb::kCkpt,
     "ckpt",
     "list, verify, prune and export checkpoints",
     {.words = 2,
      .actions = "ls verify prune export",
      .json_actions = "ls verify",
      .last_format = OutputFormat::kJson},
     R"(ACTION PATH [--flag=value ...]

Manages checkpoints. PATH is a run folder, or one checkpoint in its ckpt.

  gaccd ckpt ls PATH       list them, newest first; checks the names and sizes
                           of their files; only verify reads the bytes
  gaccd ckpt verify PATH   read every byte; exit 65 if a checkpoint is damaged
  gaccd ckpt prune PATH    remove all except the newest --keep=N intact ones
                           (it reads their bytes), that of the best
                           evaluation, and one per --keep-every=N updates
  gaccd ckpt export PATH --out=FILE
                           write the weights of the newest intact checkpoint
                           (--best: of the best evaluation) as safetensors;
                           with optimizer.ema their average, unless
                           --raw-weights
  gaccd ckpt export PATH --out=FOLDER --transformers
                           write them with config.json and the tokenizer, which
                           must be in the folder of the training tokens unless
                           --without-tokenizer

ls and verify, --format=json: one line per checkpoint with generation, step,
micro_step, writer_epoch and state (complete, or ok for verify; damaged,
unfinished, or unsupported: another version of gaccd wrote it); if known ranks,
bytes, created (ls) and reason; for the best evaluation best and best_value.
)"},
    {Verb::kVerdict, "verdict", "print whether the job script should requeue the job after a run",
     kTextOrJson,
     R"(--attempt-dir=DIR [--flag=value ...]

For the job script, after srun: prints one word for the next step of the job.
  done       the training is complete
  requeue    start it again: it was stopped, or a node or a peer was lost
  norequeue  it would fail again, or the file STOP exists
  fail       an error that needs a correction
The next line is the reason. When hosts are suspected, a third line is the
--exclude= flag for sbatch. Exits 0.

--format=json: one line with attempt, verdict (the word above), exit (the exit
code of the run), held (restarts did not help), reason, suspect_hosts.
)"},
    {Verb::kStatus, "status", "print the state of a run, or how it ended", kRunFolderTextOrJson,
     R"([RUN-DIR] [--flag=value ...]

Prints the state of the run in this folder, or in the current one: from its
STATUS.json, which is written every 10 s, its ledger and its attempts. If these
do not determine the state (a job that waits, or no longer writes), it queries
SLURM with squeue and sacct, if installed.
  submitted exit 0: it was submitted to SLURM and has not started yet
  starting, running, done   exit 0
  stale     exit 1: nothing was written for 30 s: rank 0 or its node is gone, or
            the clocks of the two machines differ
  stopped   exit 1: it ended early because of a signal, the file STOP or a lost
            rank
  failed    exit 2
--format=json: one line with folder, run, job, attempt_dir, host, phase (the
word above), age_s, submitted_jobs, submitted_age_s, slurm (its words),
gone_in_slurm (true: SLURM will not start it again), world, device, loads (ranks
x samples of an update), loads_step (the update before they changed), epoch,
step, steps_total, target, samples_total, loss, eval_step (the update before the
last evaluation), eval_loss, eval_accuracy and so on for each of its metrics,
best_metric, best_value, best_step (of all evaluations), wall_samples_per_s,
dur_p50_s, eta_s, step_age_s, save_step, save_age_s, failed_saves,
dropped_lines, exit, reason, suspect_hosts; unknown ones are absent, empty or 0.
)"},
    {Verb::kRuns, "runs", "list the runs in a folder, one line each", kRunFolderTextOrJson,
     R"([FOLDER] [--flag=value ...]

Lists the run folders in this folder, or in the current one, and in those of its
subfolders that are not run folders (the runs of an array). best: the best
evaluation so far, by the job's evaluation.metric, and its update.
--format=json: one line per run, with the keys of gaccd status.
)"},
    {Verb::kStop, "stop", "save, stop, do not requeue", kRunFolder,
     R"(RUN-DIR

Writes the file STOP into the run folder. The run saves after its next update
and exits with 93, on any node and without SLURM. While the file exists the run
does not start again. A complete run is refused.
)"},
    {Verb::kSave, "save", "let a run save a checkpoint now", kRunFolder,
     R"(RUN-DIR

Writes the file SAVE into the run folder. The run saves after its next update,
removes the file and continues.
)"},
    {Verb::kLogs, "logs", "print the logs of all ranks and attempts, merged by time", kRunFolder,
     R"([RUN-DIR] [--flag=value ...]

Prints the text logs of all ranks of a run, live or dead: attempts one after the
other, the lines of one attempt by time. Problems of the files (truncated or
missing lines, attempts that are missing or ran at the same time) are reported
on stderr. --events prints the events of all attempts as one stream of
JSON lines: events.jsonl, the updates of each rank once a minute, the crash
records of failed ranks, the verdicts.

--compact=N is for long runs that have ended: in events.jsonl of all attempts it
keeps the lines of every N-th update, the first, the last and any abnormal one.
The other updates are summed: sums in gaccd export and gaccd report do not
change; percentiles, slow ranks and curves only use the kept updates.
Evaluations, saves, failures and logs are kept.
Refused while the run is live; safe to interrupt.
)"},
    {Verb::kDoctor, "doctor", "explain why a run ended or is stuck, and what to do", kRunFolder,
     R"([RUN-DIR]

Prints the state of a run; for its newest attempt the failed ranks, in order of
time, and the last warnings; the suspected hosts, with the --exclude= flag for
sbatch; and what to do. The exit codes are those of gaccd status.
)"},
    {Verb::kExport,
     "export",
     "export events and metrics (CSV, TensorBoard, ...)",
     {.words = 1, .first_format = OutputFormat::kCsv, .last_format = OutputFormat::kPrometheus},
     R"([RUN-DIR] --format=CHOICE [--flag=value ...]

Writes the events or metrics of all attempts of a run to standard output or to
--out=FILE, which is replaced atomically.

  csv           a row per event, a column per key
  chrome-trace  updates with their phases, saves, failures, for ui.perfetto.dev
  otlp-json     metrics for the otlpjsonfile receiver of OpenTelemetry
  tensorboard   event files in the folder --out=DIR, one run per attempt
  prometheus    metrics for the textfile collector of node_exporter; RUN-DIR may
                be a folder of run folders. Runs that wrote nothing for a day
                are omitted. Call it once a minute, with --out=FILE.prom in
                the folder of the collector. FILE.prom.state next to it records
                what was read, so that the next call only reads new events
)"},
    {Verb::kReport,
     "report",
     "write a page about a run, or about several side by side",
     {.words = kMaxReportedRuns},
     R"([RUN-DIR ...] [--flag=value ...]

Writes one HTML file about a run, live or dead, that needs no network: its state
and the next command, its batch, curves, the time of an update by phase, slow
ranks, attempts, goodput, checkpoints, failures, changes between attempts, the
job. Without --out=FILE it is report.html in RUN-DIR. For several runs (at most
32) it has a table, curves in common charts, and the differences between their
jobs. Prints the name of the file.
)"},
    {Verb::kPlot, "plot", "draw loss and metrics of a run in the terminal", kRunFolder,
     R"([RUN-DIR]

Draws the training loss and every evaluation metric over the updates, with ^
where an attempt begins: in braille if the locale is UTF-8, otherwise in ASCII.
)"},
    {Verb::kHelp, "help", "explain a verb (gaccd help plan) or the job text (gaccd help job)",
     kFlagsOnly,
     R"([VERB [ACTION] | job [FIELD] | man | bash]

Explains a verb, or the fields of the job text: all, or those with one name or
in one group, for example gaccd help job csv. man: everything as a manual page,
for man -l -. bash: completion of verbs, flags and their values, for
  source <(gaccd help bash)
)"},
    {Verb::kVersion, "version", "print the versions of gaccd and its libraries", kFlagsOnly,
     R"(

Prints the versions of gaccd and its libraries: the loaded version and the one
that gaccd was compiled with. gaccd refuses to use an older library.
)"}};
static_assert(HasEveryVerb(kVerbs));

}  // namespace

std::span<const VerbRow> VerbTable() { return kVerbs; }

const VerbRow& GetVerbRow(Verb verb) { return kVerbs[static_cast<std::size_t>(verb)]; }

bool HasWord(std::string_view list, std::string_view word) { return HasPart(list, word, ' '); }

std::string ListFormats(OutputFormat first, OutputFormat last) {
  std::string list;
  for (int i = static_cast<int>(first); i <= static_cast<int>(last); ++i) {
    const std::string_view before = list.empty() ? "" : i < static_cast<int>(last) ? ", " : " or ";
    list += StrCat(before, Name(static_cast<OutputFormat>(i)));
  }
  return list;
}

Result<Verb> ParseVerb(std::string_view word) {
  std::vector<std::string_view> names;
  for (const VerbRow& row : kVerbs) {
    if (row.name == word) return row.verb;
    names.push_back(row.name);
  }
  return Status(ErrorKind::kUsage, StrCat("unknown verb '", word, "'", Suggestion(word, names),
                                          "; the verbs are ", Join(names, ", ")));
}

Verb DefaultVerb(const Environment& environment) {
  const bool slurm_step =
      environment("SLURM_STEP_ID").has_value() && environment("SLURM_PROCID").has_value();
  const bool mpirun = environment("OMPI_COMM_WORLD_SIZE").has_value();
  return slurm_step || mpirun ? Verb::kTrain : Verb::kPlan;
}

}  // namespace gaccd
