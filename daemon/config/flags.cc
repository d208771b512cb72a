#include "daemon/config/flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/stop/stop_signals.h"

// The values that gflags parses. Flags holds what was given; help.cc explains them.
DEFINE_int64(nodes, gaccd::kDefaultNodes, "nodes");
DEFINE_int64(gpus_per_node, gaccd::kDefaultGpusPerNode, "ranks on each node");
DEFINE_int64(micro_batch, 10, "the most samples a rank holds at once");
DEFINE_int64(target_batch, 0, "samples of one update");
DEFINE_string(rounding, "exact", "exact, floor, ceil or nearest");
DEFINE_bool(strict, false, "refuse a plan that is not exact");
DEFINE_string(lr_rule, "none", "none, linear or sqrt");
DEFINE_int64(reference_batch, 0, "for --lr-rule; 0 = the target");
DEFINE_string(last_cycle, "update", "update, carry or drop");
DEFINE_string(format, "text", "text, json or txtpb");
DEFINE_string(job, "", "the job text");
DEFINE_string(config, "", "another name of --job");
DEFINE_string(run_dir, "", "folder of the run");
DEFINE_int64(epochs, 1, "passes over the data");
DEFINE_int64(max_updates, 0, "stop after this many updates; 0 = no limit");
DEFINE_uint64(seed, 1, "of the initial weights and the sample order");
DEFINE_int64(log_every, 100, "updates between two log lines");
DEFINE_string(device, "auto", "auto, cpu or cuda");
DEFINE_string(precision, "f32", "f32 or bf16");
DEFINE_bool(tf32, false, "products may round their inputs to TF32");
DEFINE_bool(deterministic, false, "the same bits from run to run");
DEFINE_bool(allow_gpu_sharing, false, "several ranks may use one GPU");
DEFINE_bool(time_algorithms, false, "choose the algorithms of matrix products by time");
DEFINE_string(init_weights, "", "safetensors to start from");
DEFINE_string(save_weights, "", "safetensors to write at the end");
DEFINE_int64(save_every_updates, 0, "updates between two checkpoints; 0 = not by updates");
DEFINE_int64(save_every_seconds, gaccd::kDefaultSaveSeconds,
             "seconds between two checkpoints; 0 = not by time");
DEFINE_string(resume, "auto", "auto, never or the path of a checkpoint");
DEFINE_int64(keep, 3, "newest checkpoints that stay");
DEFINE_int64(keep_every, 0, "and one checkpoint of each so many updates");
DEFINE_int64(failed_saves, 3, "failed saves in a row that end the run");
DEFINE_bool(group_access, false, "the group may read checkpoints");
DEFINE_string(out, "", "safetensors that ckpt export writes");
DEFINE_int64(bound, 60, "seconds after which a silent rank ends the run");
DEFINE_int64(heartbeat_seconds, 5, "silence after which a rank counts as lost; 0 = no heartbeat");
DEFINE_string(stop_signals, "USR1,USR2,TERM", "signals that stop the run, to be requeued");
DEFINE_int64(term_budget, 25, "seconds that are counted on after SIGTERM");
DEFINE_string(on_nonfinite, "stop", "stop, skip-update or drop-micro-batch");
DEFINE_string(on_bad_record, "stop", "stop or skip");
DEFINE_int64(bad_record_quota, 100, "records that may be skipped");
DEFINE_int64(digest_every, 100, "updates between two digests of the replicas; 0 = none");
DEFINE_string(attempt_dir, "", "folder of the attempt that verdict judges");
DEFINE_int64(srun_rc, 0, "exit code of srun that verdict judges");

namespace gaccd {
namespace {

// What a flag does to Flags once gflags has parsed its value. Null: the value was acceptable.
using Problem = std::optional<std::string>;
struct FlagRule {
  std::string_view name;
  std::function<Problem(Flags&)> store;
  bool is_bool = false;
};

FlagRule Count(std::string_view name, const std::int64_t& value, std::int64_t least,
               std::optional<std::int64_t> Flags::*field) {
  return {name, [&value, least, field](Flags& flags) -> Problem {
            if (value < least) return StrCat("must be at least ", least);
            flags.*field = value;
            return std::nullopt;
          }};
}

FlagRule Number(std::string_view name, const std::int64_t& value, std::int64_t least,
                std::int64_t Flags::*field) {
  return {name, [&value, least, field](Flags& flags) -> Problem {
            if (value < least) return StrCat("must be at least ", least);
            flags.*field = value;
            return std::nullopt;
          }};
}

FlagRule Path(std::string_view name, const std::string& value,
              std::optional<std::string> Flags::*field) {
  return {name, [&value, field](Flags& flags) -> Problem {
            flags.*field = value;
            return std::nullopt;
          }};
}

// `field` is a bool or an optional<bool> of Flags.
template <typename Field>
FlagRule YesNo(std::string_view name, const bool& value, Field Flags::*field) {
  return {name,
          [&value, field](Flags& flags) -> Problem {
            flags.*field = value;
            return std::nullopt;
          },
          true};
}

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

// `field` is an E or an optional<E> of Flags.
template <typename E, typename Field, std::size_t n>
FlagRule OneOf(std::string_view name, const std::string& value, Field Flags::*field,
               std::array<Choice<E>, n> choices) {
  return {name, [&value, field, choices](Flags& flags) -> Problem {
            std::string names;
            for (const Choice<E>& choice : choices) {
              if (choice.name == value) {
                flags.*field = choice.value;
                return std::nullopt;
              }
              names += StrCat(names.empty() ? "" : ", ", choice.name);
            }
            return StrCat("must be one of ", names);
          }};
}

std::vector<FlagRule> BatchRules() {
  return {
      Count("nodes", FLAGS_nodes, 1, &Flags::nodes),
      Count("gpus_per_node", FLAGS_gpus_per_node, 1, &Flags::gpus_per_node),
      Count("micro_batch", FLAGS_micro_batch, 1, &Flags::micro_batch),
      Count("target_batch", FLAGS_target_batch, 1, &Flags::target_batch),
      OneOf<Rounding, std::optional<Rounding>, 4>("rounding", FLAGS_rounding, &Flags::rounding,
                                                  {{{"exact", Rounding::kExact},
                                                    {"floor", Rounding::kFloor},
                                                    {"ceil", Rounding::kCeil},
                                                    {"nearest", Rounding::kNearest}}}),
      OneOf<LrRule, std::optional<LrRule>, 3>(
          "lr_rule", FLAGS_lr_rule, &Flags::lr_rule,
          {{{"none", LrRule::kNone}, {"linear", LrRule::kLinear}, {"sqrt", LrRule::kSqrt}}}),
      Count("reference_batch", FLAGS_reference_batch, 0, &Flags::reference_batch),
      OneOf<LastCycle, std::optional<LastCycle>, 3>("last_cycle", FLAGS_last_cycle,
                                                    &Flags::last_cycle,
                                                    {{{"update", LastCycle::kUpdate},
                                                      {"carry", LastCycle::kCarry},
                                                      {"drop", LastCycle::kDrop}}}),
      YesNo("strict", FLAGS_strict, &Flags::strict),
      OneOf<OutputFormat, OutputFormat, 3>("format", FLAGS_format, &Flags::format,
                                           {{{"text", OutputFormat::kText},
                                             {"json", OutputFormat::kJson},
                                             {"txtpb", OutputFormat::kTxtpb}}}),
  };
}

std::vector<FlagRule> DeviceRules() {
  return {
      OneOf<Device, std::optional<Device>, 3>(
          "device", FLAGS_device, &Flags::device,
          {{{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}}),
      OneOf<Precision, std::optional<Precision>, 2>(
          "precision", FLAGS_precision, &Flags::precision,
          {{{"f32", Precision::kF32}, {"bf16", Precision::kBF16}}}),
      YesNo("tf32", FLAGS_tf32, &Flags::tf32),
      YesNo("deterministic", FLAGS_deterministic, &Flags::deterministic),
      YesNo("allow_gpu_sharing", FLAGS_allow_gpu_sharing, &Flags::allow_gpu_sharing),
      YesNo("time_algorithms", FLAGS_time_algorithms, &Flags::time_algorithms),
  };
}

std::vector<FlagRule> RunRules() {
  return {
      Path("job", FLAGS_job, &Flags::job),
      Path("config", FLAGS_config, &Flags::job),
      Path("run_dir", FLAGS_run_dir, &Flags::run_dir),
      Count("epochs", FLAGS_epochs, 0, &Flags::epochs),
      Count("max_updates", FLAGS_max_updates, 0, &Flags::max_updates),
      {"seed",
       [](Flags& flags) -> Problem {
         flags.seed = FLAGS_seed;
         return std::nullopt;
       }},
      Count("log_every", FLAGS_log_every, 1, &Flags::log_every),
      Path("init_weights", FLAGS_init_weights, &Flags::init_weights),
      Path("save_weights", FLAGS_save_weights, &Flags::save_weights),
      {"bound",
       [](Flags& flags) -> Problem {
         constexpr std::int64_t kDay = 86400;  // keeps every sum of deadlines in range
         if (FLAGS_bound < 1 || FLAGS_bound > kDay) {
           return StrCat("must be from 1 to ", kDay, " seconds");
         }
         flags.bound_seconds = FLAGS_bound;
         return std::nullopt;
       }},
      Number("heartbeat_seconds", FLAGS_heartbeat_seconds, 0, &Flags::heartbeat_seconds),
  };
}

std::vector<FlagRule> CheckpointRules() {
  return {
      Number("save_every_updates", FLAGS_save_every_updates, 0, &Flags::save_every_updates),
      Count("save_every_seconds", FLAGS_save_every_seconds, 0, &Flags::save_every_seconds),
      {"resume",
       [](Flags& flags) -> Problem {
         flags.resume = FLAGS_resume;
         return std::nullopt;
       }},
      Number("keep", FLAGS_keep, 1, &Flags::keep),
      Number("keep_every", FLAGS_keep_every, 0, &Flags::keep_every),
      Number("failed_saves", FLAGS_failed_saves, 1, &Flags::failed_saves),
      YesNo("group_access", FLAGS_group_access, &Flags::group_access),
      Path("out", FLAGS_out, &Flags::out),
  };
}

std::vector<FlagRule> FaultRules() {
  return {
      {"stop_signals",
       [](Flags& flags) -> Problem {
         Result<std::vector<int>> signals = ParseSignals(FLAGS_stop_signals);
         if (!signals.ok()) return signals.status().message();
         flags.stop_signals = *std::move(signals);
         return std::nullopt;
       }},
      Number("term_budget", FLAGS_term_budget, 0, &Flags::term_budget_seconds),
      OneOf<OnNonfinite, OnNonfinite, 3>("on_nonfinite", FLAGS_on_nonfinite, &Flags::on_nonfinite,
                                         {{{"stop", OnNonfinite::kStop},
                                           {"skip-update", OnNonfinite::kSkipUpdate},
                                           {"drop-micro-batch", OnNonfinite::kDropMicroBatch}}}),
      OneOf<OnBadRecord, OnBadRecord, 2>(
          "on_bad_record", FLAGS_on_bad_record, &Flags::on_bad_record,
          {{{"stop", OnBadRecord::kStop}, {"skip", OnBadRecord::kSkip}}}),
      Number("bad_record_quota", FLAGS_bad_record_quota, 0, &Flags::bad_record_quota),
      Number("digest_every", FLAGS_digest_every, 0, &Flags::digest_every),
      Path("attempt_dir", FLAGS_attempt_dir, &Flags::attempt_dir),
      Count("srun_rc", FLAGS_srun_rc, 0, &Flags::srun_rc),
  };
}

// Flags of glog that are useful here; they are only known in programs that link glog.
constexpr std::string_view kLogFlags[] = {"v", "vmodule", "minloglevel", "stderrthreshold"};

std::string Dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Why gflags did not take `value` for a flag of `type`.
std::string WhyRefused(std::string_view value, std::string_view type) {
  if (type == "bool") return "must be true or false";
  const std::size_t digits = value.starts_with('-') || value.starts_with('+') ? 1 : 0;
  const bool number = digits < value.size() &&
                      value.find_first_not_of("0123456789", digits) == std::string_view::npos;
  if (!number) return "must be a whole number";
  return type == "uint64" ? "must be a whole number from 0 to 18446744073709551615"
                          : "does not fit 64 bits";
}

Status Store(const FlagValue& given, const std::vector<FlagRule>& rules, Flags& flags) {
  const auto refuse = [&given](const std::string& problem) {
    return Status(ErrorKind::kUsage,
                  StrCat(given.where, "--", Dashed(given.name), "=", given.value, ": ", problem));
  };
  if (gflags::SetCommandLineOption(given.name.c_str(), given.value.c_str()).empty()) {
    return refuse(
        WhyRefused(given.value, gflags::GetCommandLineFlagInfoOrDie(given.name.c_str()).type));
  }
  const auto rule = std::find_if(rules.begin(), rules.end(),
                                 [&given](const FlagRule& one) { return one.name == given.name; });
  if (rule == rules.end()) return {};  // one of kLogFlags
  if (const Problem problem = rule->store(flags)) return refuse(*problem);
  return {};
}

std::vector<KnownFlag> AllKnown(const std::vector<FlagRule>& rules) {
  // gflags has its own help and version, which end the process; ours never reach it.
  std::vector<KnownFlag> known = {{"help", true}, {"h", true}, {"version", true}};
  for (const FlagRule& rule : rules) {
    known.push_back({std::string(rule.name), rule.is_bool});
  }
  for (const std::string_view name : kLogFlags) {
    gflags::CommandLineFlagInfo info;
    if (gflags::GetCommandLineFlagInfo(std::string(name).c_str(), &info)) {
      known.push_back({std::string(name), info.type == "bool"});
    }
  }
  return known;
}

// `gaccd help plan`, `gaccd ckpt ls PATH`, `gaccd plan`, `gaccd`.
Status ReadWords(const std::vector<std::string>& words, Flags& flags) {
  std::size_t used = 0;
  if (used < words.size()) {
    GACCD_ASSIGN_OR_RETURN(flags.verb, ParseVerb(words[used++]));
    if (flags.verb == Verb::kHelp && used < words.size()) {
      GACCD_ASSIGN_OR_RETURN(flags.help_topic, ParseVerb(words[used++]));
    }
  }
  if (flags.verb == Verb::kCkpt) {
    constexpr std::size_t kMost = 2;
    for (; used < words.size() && flags.ckpt_words.size() < kMost; ++used) {
      flags.ckpt_words.push_back(words[used]);
    }
  }
  if (used == words.size()) return {};
  const bool takes_job = flags.verb == Verb::kTrain || flags.verb == Verb::kPlan;
  return {ErrorKind::kUsage, StrCat("unexpected argument '", words[used], "' after '",
                                    words[used - 1], "'; flags begin with --",
                                    takes_job ? StrCat(", for example --job=", words[used]) : "")};
}

// A flag of another verb must not be ignored; one from a file may be, which verbs can share.
Status CheckFlagsOfVerb(const std::vector<FlagValue>& given, Verb verb) {
  for (const FlagValue& flag : given) {
    const bool of_glog =
        std::find(std::begin(kLogFlags), std::end(kLogFlags), flag.name) != std::end(kLogFlags);
    if (of_glog || !flag.where.empty() || TakesFlag(verb, flag.name)) continue;
    return {ErrorKind::kUsage, StrCat(Name(verb), " takes no --", Dashed(flag.name))};
  }
  return {};
}

// A format that the verb does not have must not be ignored.
Status CheckFormat(const Flags& flags) {
  const auto refuse = [&flags](std::string_view verb, std::string_view formats) {
    return Status(ErrorKind::kUsage,
                  StrCat(verb, ": --format must be ", formats, ", found ",
                         flags.format == OutputFormat::kJson ? "json" : "txtpb"));
  };
  if (flags.format == OutputFormat::kText || flags.verb == Verb::kPlan) return {};
  const bool has_json = flags.verb == Verb::kCheck || flags.verb == Verb::kVerdict ||
                        flags.verb == Verb::kSelftest ||
                        (flags.verb == Verb::kCkpt && !flags.ckpt_words.empty() &&
                         (flags.ckpt_words[0] == "ls" || flags.ckpt_words[0] == "verify"));
  if (!has_json) return refuse(Name(flags.verb), "text");
  return flags.format == OutputFormat::kJson ? Status() : refuse(Name(flags.verb), "text or json");
}

}  // namespace

Result<Flags> ParseFlags(std::span<const char* const> args, const Environment& environment) {
  std::vector<FlagRule> rules = BatchRules();
  for (FlagRule& rule : DeviceRules()) rules.push_back(std::move(rule));
  for (FlagRule& rule : RunRules()) rules.push_back(std::move(rule));
  for (FlagRule& rule : CheckpointRules()) rules.push_back(std::move(rule));
  for (FlagRule& rule : FaultRules()) rules.push_back(std::move(rule));
  const std::vector<KnownFlag> known = AllKnown(rules);
  GACCD_ASSIGN_OR_RETURN(const Arguments given, SplitArguments(args, known));

  Flags flags;
  flags.verb = DefaultVerb(environment);
  if (args.empty() && flags.verb == Verb::kPlan) flags.verb = Verb::kHelp;
  GACCD_RETURN_IF_ERROR(ReadWords(given.words, flags));
  bool help = false;
  bool version = false;
  for (const FlagValue& flag : given.flags) {
    if (flag.name == "help" || flag.name == "h") {
      help = flag.value != "false";
    } else if (flag.name == "version") {
      version = flag.value != "false";
    } else {
      GACCD_RETURN_IF_ERROR(Store(flag, rules, flags));
    }
  }
  if (help) {
    if (!given.words.empty() && flags.verb != Verb::kHelp) flags.help_topic = flags.verb;
    flags.verb = Verb::kHelp;
  } else if (version) {
    flags.verb = Verb::kVersion;
  }
  GACCD_RETURN_IF_ERROR(CheckFlagsOfVerb(given.flags, flags.verb));
  GACCD_RETURN_IF_ERROR(CheckFormat(flags));
  return flags;
}

Result<Flags> ParseFlags(int argc, const char* const* argv) {
  const std::span<const char* const> all(argv, static_cast<std::size_t>(std::max(argc, 0)));
  return ParseFlags(all.empty() ? all : all.subspan(1), ProcessEnvironment());
}

}  // namespace gaccd
