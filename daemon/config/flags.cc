#include "daemon/config/flags.h"

#include <gflags/gflags.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/fields.h"
#include "daemon/config/flag_values.h"
#include "daemon/stop/stop_requests.h"
#include "proto/field.pb.h"
#include "proto/flags.pb.h"
#include "proto/job.pb.h"

namespace gaccd {

namespace {

constexpr std::string_view kHelpFlags[] = {"help", "h", "version"};
// Flags of glog that users may set; gflags only has them in programs that link glog.
constexpr std::string_view kLogFlags[] = {"v", "vmodule", "minloglevel", "stderrthreshold"};
constexpr std::string_view kSet = "set";
constexpr std::string_view kMicroBatch = "batch.micro";

template <typename List, typename T>
bool Contains(const List& list, const T& one) {
  return std::find(std::begin(list), std::end(list), one) != std::end(list);
}

std::vector<KnownFlag> AllKnown() {
  std::vector<KnownFlag> known = {{std::string(kSet), false}, {"config", false}};
  for (const std::string_view name : kHelpFlags) known.push_back({std::string(name), true});
  for (const FlagRow& row : FlagTable()) known.push_back({row.name, row.is_bool()});
  for (const std::string_view name : kLogFlags) {
    gflags::CommandLineFlagInfo info;
    if (gflags::GetCommandLineFlagInfo(std::string(name).c_str(), &info)) {
      known.push_back({std::string(name), info.type == "bool"});
    }
  }
  return known;
}

// Checks the value against the message type only: the job is read later.
Status StoreJobField(std::string_view path, const std::string& value, const std::string& given,
                     Flags& flags) {
  if (path == kMicroBatch) {  // the last value wins
    flags.micro_batch_auto = value == "auto";
    std::erase_if(flags.job_fields,
                  [](const JobField& field) { return field.path == kMicroBatch; });
    if (flags.micro_batch_auto) return {};
  }
  proto::Job any;
  GACCD_RETURN_IF_ERROR(SetField(any, path, value, ListElement::kAny));
  flags.job_fields.push_back({std::string(path), value, given});
  return {};
}

bool IsSwept(const FlagValue& flag, bool array) {
  return array && flag.name == kSet && flag.value.find(',') != std::string::npos;
}

// "optimizer.lr", "0.1,0.01"
Status StoreSweep(const std::string& path, const std::string& values, Flags& flags) {
  SweptField swept{.path = path};
  // The comma: so that an empty last value is read, and rejected.
  for (const std::string& value : Split(values + ",", ',')) {
    proto::Job any;
    GACCD_RETURN_IF_ERROR(SetField(any, path, value, ListElement::kAny));
    swept.values.push_back(value);
  }
  flags.sweep.push_back(std::move(swept));
  return {};
}

Status Store(const FlagValue& flag, const std::string& given, proto::Flags& message, Flags& flags) {
  if (flag.name == kSet) {
    const std::size_t end = flag.value.find('=');
    if (end == std::string::npos) return {ErrorKind::kUsage, "expected --set FIELD=VALUE"};
    const std::string path = flag.value.substr(0, end);
    const std::string value = flag.value.substr(end + 1);
    return IsSwept(flag, message.array()) ? StoreSweep(path, value, flags)
                                          : StoreJobField(path, value, given, flags);
  }
  const FlagRow* row = FindFlag(flag.name);
  if (row == nullptr) {  // one of kLogFlags
    const bool accepted =
        !gflags::SetCommandLineOption(flag.name.c_str(), flag.value.c_str()).empty();
    return accepted ? Status() : Status(ErrorKind::kUsage, "is refused by glog");
  }
  if (!row->job_path.empty()) return StoreJobField(row->job_path, flag.value, given, flags);
  if (flag.name == "memory") GACCD_RETURN_IF_ERROR(ParseMemory(flag.value).status());
  if (flag.name == "stop-signals") GACCD_RETURN_IF_ERROR(ParseSignals(flag.value).status());
  // A folder of that name would be made. No other text begins so.
  if (!row->is_bool() && (flag.value == "~" || flag.value.starts_with("~/"))) {
    return {ErrorKind::kUsage, "~ is not expanded: write the full path"};
  }
  std::string field = row->name;
  std::replace(field.begin(), field.end(), '-', '_');
  return SetField(message, field, flag.value, ListElement::kMustExist);
}

Status ReadHelpTopic(std::string_view word, Flags& flags) {
  constexpr std::string_view kPages[] = {"", "job", "man", "bash"};  // in the order of HelpPage
  const auto page = std::ranges::find(kPages, word);
  if (page != std::end(kPages) && !word.empty()) {
    flags.help_page = static_cast<HelpPage>(page - kPages);
    return {};
  }
  GACCD_ASSIGN_OR_RETURN(flags.help_topic, ParseVerb(word));
  return {};
}

// `gaccd help plan`, `gaccd help ckpt ls`, `gaccd ckpt ls PATH`, `gaccd plan`, `gaccd`.
Status ReadWords(const std::vector<std::string>& words, Flags& flags) {
  std::size_t used = 0;
  if (used < words.size()) {
    GACCD_ASSIGN_OR_RETURN(flags.verb, ParseVerb(words[used++]));
    if (flags.verb == Verb::kHelp && used < words.size()) {
      GACCD_RETURN_IF_ERROR(ReadHelpTopic(words[used++], flags));
      if (flags.help_page == HelpPage::kJob && used < words.size()) {
        flags.words.push_back(words[used++]);
      } else if (flags.help_topic && used < words.size() &&
                 HasWord(GetVerbRow(*flags.help_topic).takes.actions, words[used])) {
        ++used;  // the help of a verb explains its actions
      }
    }
  }
  const std::size_t max_words = GetVerbRow(flags.verb).takes.words;
  for (; used < words.size() && flags.words.size() < max_words; ++used) {
    flags.words.push_back(words[used]);
  }
  const std::string_view actions = GetVerbRow(flags.verb).takes.actions;
  if (!flags.words.empty() && !actions.empty() && !HasWord(actions, flags.words[0])) {
    return {ErrorKind::kUsage, StrCat(Name(flags.verb), ": expected one of: ", actions, ", found '",
                                      flags.words[0], "'")};
  }
  if (used == words.size()) return {};
  std::string example;
  if (FindFlag("job")->IsAcceptedBy(flags.verb)) {
    example = StrCat(", for example --job=", words[used]);
  }
  if (flags.verb == Verb::kVerdict) {
    example = StrCat(", for example --attempt-dir=", words[used], "/attempts/latest");
  }
  return {ErrorKind::kUsage, StrCat("unexpected argument '", words[used], "' after '",
                                    words[used - 1], "'; flags begin with --", example)};
}

// " (did you mean --epochs?)" from the flags of the verb; empty: none is near.
std::string SuggestFlag(std::string_view name, Verb verb) {
  std::vector<std::string> names;
  for (const FlagRow& row : FlagTable()) {
    if (row.IsAcceptedBy(verb)) names.push_back("--" + row.name);
  }
  return Suggestion(name, std::vector<std::string_view>(names.begin(), names.end()));
}

// kUsage for a flag of another verb, unless it is in a flag file: verbs may share these.
Status CheckVerbFlags(std::span<const FlagValue> given, Verb verb) {
  if (verb == Verb::kHelp || verb == Verb::kVersion) return {};
  for (const FlagValue& flag : given) {
    if (!flag.where.empty() || Contains(kLogFlags, flag.name) || Contains(kHelpFlags, flag.name)) {
      continue;
    }
    const FlagRow* row = FindFlag(flag.name == kSet ? "job" : flag.name);
    if (row != nullptr && row->IsAcceptedBy(verb)) continue;
    return {ErrorKind::kUsage,
            StrCat(Name(verb), " takes no --", flag.name, SuggestFlag(flag.name, verb))};
  }
  return {};
}

// --micro-batch=auto: only some verbs know the memory of a training. Verbs without --micro-batch
// ignore one in a flag file, like CheckVerbFlags().
Status CheckMicroBatch(const Flags& flags) {
  const bool supports_auto = flags.verb == Verb::kTrain || flags.verb == Verb::kPlan ||
                             flags.verb == Verb::kSubmit || flags.verb == Verb::kCheck ||
                             flags.verb == Verb::kHelp;
  if (flags.micro_batch_auto && !supports_auto &&
      FindFlag("micro-batch")->IsAcceptedBy(flags.verb)) {
    return {ErrorKind::kUsage, StrCat(Name(flags.verb),
                                      ": --micro-batch must be a whole number, found auto, which "
                                      "only train, plan and submit accept")};
  }
  if (flags.memory && !flags.micro_batch_auto) {
    return {ErrorKind::kUsage, "--memory is the limit of --micro-batch=auto, which is not set"};
  }
  if (flags.micro_batch_auto && flags.verb == Verb::kPlan && !flags.job) {
    return {ErrorKind::kUsage, "plan: --micro-batch=auto needs --job=FILE, which has the model"};
  }
  return {};
}

// kUsage for the limit of a choice that is not made.
Status CheckBadRecordQuota(const Flags& flags) {
  const bool given = flags.bad_record_quota != FlagsSpec().bad_record_quota;
  if (!given || flags.on_bad_record == OnBadRecord::kSkip ||
      !FindFlag("bad-record-quota")->IsAcceptedBy(flags.verb)) {
    return {};
  }
  return {ErrorKind::kUsage,
          "--bad-record-quota is the limit of --on-bad-record=skip, which is not set"};
}

void ForwardToTrain(const FlagValue& flag, bool array, Flags& flags) {
  constexpr std::string_view kSetByScript[] = {"job", "config", "run-dir", "local-ranks"};
  if (Contains(kSetByScript, flag.name) || IsSwept(flag, array)) return;
  if (flag.name == kSet) {
    flags.train_arguments.insert(flags.train_arguments.end(), {"--set", flag.value});
    return;
  }
  const FlagRow* row = FindFlag(flag.name);
  if (row != nullptr && !row->IsAcceptedBy(Verb::kTrain)) return;
  flags.train_arguments.push_back(StrCat("--", flag.name, "=", flag.value));
}

// kUsage for a format that the verb or its action does not support.
Status CheckFormat(const Flags& flags) {
  const VerbArguments& takes = GetVerbRow(flags.verb).takes;
  const bool has_last = takes.json_actions.empty() ||
                        (!flags.words.empty() && HasWord(takes.json_actions, flags.words[0]));
  const OutputFormat first = takes.first_format;
  const OutputFormat last = has_last ? takes.last_format : first;
  if (flags.format >= first && flags.format <= last) return {};
  return {ErrorKind::kUsage, StrCat(Name(flags.verb), ": --format must be ",
                                    ListFormats(first, last), ", found ", Name(flags.format))};
}

// A plan for the command line of a training on this machine has the ranks that this starts.
void PlanLocalRanks(Flags& flags) {
  const bool plans =
      flags.verb == Verb::kPlan || flags.verb == Verb::kSamples || flags.verb == Verb::kSubmit;
  if (plans && !flags.nodes && !flags.gpus_per_node) flags.gpus_per_node = flags.local_ranks;
}

}  // namespace

Result<Flags> ParseFlags(std::span<const char* const> args, const Environment& environment) {
  GACCD_ASSIGN_OR_RETURN(const Arguments given, SplitArguments(args, AllKnown()));
  Flags flags;
  flags.verb = DefaultVerb(environment);
  if (args.empty() && flags.verb == Verb::kPlan) flags.verb = Verb::kHelp;
  GACCD_RETURN_IF_ERROR(ReadWords(given.words, flags));
  bool help = false;
  bool version = false;
  proto::Flags message;
  for (const FlagValue& flag : given.flags) {  // first: it determines how --set is read
    if (flag.name == "array") GACCD_RETURN_IF_ERROR(Store(flag, "--array", message, flags));
  }
  for (const FlagValue& flag : given.flags) {
    if (Contains(kHelpFlags, flag.name)) {
      (flag.name == "version" ? version : help) = flag.value != "false";
      continue;
    }
    const std::string_view between = flag.name == kSet ? " " : "=";
    const std::string spelled = StrCat(flag.where, "--", flag.name, between, flag.value);
    if (const Status stored = Store(flag, spelled, message, flags); !stored.ok()) {
      GACCD_RETURN_IF_ERROR(CheckVerbFlags({&flag, 1}, flags.verb));
      return stored.WithContext(spelled);
    }
    if (flags.verb == Verb::kSubmit) ForwardToTrain(flag, message.array(), flags);
  }
  static_cast<FlagsSpec&>(flags) = FromProto(message);
  if (help) {
    if (!given.words.empty() && flags.verb != Verb::kHelp) flags.help_topic = flags.verb;
    flags.verb = Verb::kHelp;
  } else if (version) {
    flags.verb = Verb::kVersion;
  }
  GACCD_RETURN_IF_ERROR(CheckVerbFlags(given.flags, flags.verb));
  GACCD_RETURN_IF_ERROR(CheckFormat(flags));
  GACCD_RETURN_IF_ERROR(CheckMicroBatch(flags));
  GACCD_RETURN_IF_ERROR(CheckBadRecordQuota(flags));
  PlanLocalRanks(flags);
  return flags;
}

Result<Flags> ParseFlags(int argc, const char* const* argv) {
  const std::span<const char* const> all(argv, static_cast<std::size_t>(std::max(argc, 0)));
  return ParseFlags(all.empty() ? all : all.subspan(1), ProcessEnvironment());
}

bool SetsJobField(const Flags& flags, std::string_view path) {
  return std::any_of(flags.job_fields.begin(), flags.job_fields.end(),
                     [path](const JobField& field) { return field.path == path; });
}

namespace {

std::vector<FlagRow> MakeTable() {
  std::vector<FlagRow> table;
  for (const NamedField& leaf : LeafFields(*proto::Flags::descriptor())) {
    table.push_back({ToKebabCase(leaf.path), leaf.field, ""});
  }
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    const std::string& flag = leaf.field->options().GetExtension(proto::field).flag();
    if (!flag.empty()) table.push_back({flag, leaf.field, leaf.path});
  }
  return table;
}

}  // namespace

bool FlagRow::is_bool() const {
  return field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL;
}

bool FlagRow::IsListedFor(Verb verb) const {
  return HasWord(field->options().GetExtension(proto::field).verbs(), Name(verb));
}

bool FlagRow::IsAcceptedBy(Verb verb) const {
  return IsListedFor(verb) || (GetVerbRow(verb).takes.flags_of_train && IsListedFor(Verb::kTrain));
}

const std::vector<FlagRow>& FlagTable() {
  static const std::vector<FlagRow> kTable = MakeTable();
  return kTable;
}

const FlagRow* FindFlag(std::string_view name) {
  if (name == "config") name = "job";
  const std::vector<FlagRow>& table = FlagTable();
  const auto row = std::find_if(table.begin(), table.end(),
                                [name](const FlagRow& one) { return one.name == name; });
  return row == table.end() ? nullptr : &*row;
}

std::string SharedFlagsText(const Flags& flags) {
  proto::Flags message = ToProto(flags);
  for (const FlagRow& row : FlagTable()) {
    const bool local =
        row.job_path.empty() && row.field->options().GetExtension(proto::field).local();
    if (local) message.GetReflection()->ClearField(&message, row.field);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return flags.micro_batch_auto ? text + "micro_batch: auto\n" : text;
}

}  // namespace gaccd
