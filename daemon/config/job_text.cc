#include "daemon/config/job_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <array>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/job_proto.h"
#include "daemon/stop/stop_signals.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

// protobuf's 'Message type "gaccd.proto.Layer" has no field named "rleu".' with what it has.
std::string Explained(const std::string& message) {
  static const std::regex kPattern("Message type \"([^\"]+)\" has no field named \"([^\"]+)\"\\.");
  std::smatch match;
  if (!std::regex_match(message, match, kPattern)) return message;
  const auto* type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(match[1]);
  if (type == nullptr) return message;
  std::vector<std::string_view> fields;
  std::string list;
  for (int i = 0; i < type->field_count(); ++i) {
    fields.emplace_back(type->field(i)->name());
    list += StrCat(i == 0 ? "" : ", ", fields.back());
  }
  return StrCat("unknown field '", match[2].str(), "'", Suggestion(match[2].str(), fields), "; ",
                type->name(), " has ", fields.empty() ? "no fields" : list);
}

// Keeps the first complaint of the parser; the later ones mostly follow from it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (++count_ > 1) return;
    // Both count from 0; line -1 is the text as a whole.
    if (line >= 0) text_ = StrCat(line + 1, ":", column + 1, ": ");
    text_ += Explained(message);
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    AddError(line, column, message);
  }

  [[nodiscard]] bool any() const { return count_ > 0; }
  [[nodiscard]] std::string Text() const {
    if (count_ == 1) return text_;
    return StrCat(text_, " (and ", count_ - 1, " more error", count_ == 2 ? "" : "s", ")");
  }

 private:
  int count_ = 0;
  std::string text_;
};

// 0: the targets are vectors.
std::int64_t Classes(const SourceSpec& source) {
  if (const auto* idx = std::get_if<IdxSource>(&source)) return idx->classes;
  if (const auto* npy = std::get_if<NpySource>(&source)) return npy->classes;
  return 0;
}

Status Bad(const std::string& message) { return {ErrorKind::kConfig, message}; }

Status CheckLossFitsSource(LossKind loss, const SourceSpec& source, std::string_view field) {
  const bool labels = Classes(source) > 0;
  if (loss == LossKind::kSoftmaxCrossEntropy && !labels) {
    return Bad(StrCat("model.loss: softmax_cross_entropy needs labels, but ", field,
                      " has vectors as targets (classes 0)"));
  }
  if (loss == LossKind::kMeanSquaredError && labels) {
    return Bad(StrCat("model.loss: mean_squared_error needs vectors as targets, but ", field,
                      " has labels (classes ", Classes(source), ")"));
  }
  return {};
}

// What one field alone cannot show.
Status CheckWholeJob(const Job& job) {
  GACCD_RETURN_IF_ERROR(CheckLossFitsSource(job.model.loss, job.data.train, "data.train"));
  if (job.data.eval) {
    GACCD_RETURN_IF_ERROR(CheckLossFitsSource(job.model.loss, *job.data.eval, "data.eval"));
    if (Classes(*job.data.eval) != Classes(job.data.train)) {
      return Bad(StrCat("data.eval: must have the classes of data.train, expected ",
                        Classes(job.data.train), ", found ", Classes(*job.data.eval)));
    }
  }
  if (job.epochs == 0 && job.max_updates == 0) {
    return Bad("epochs: 0 means no end, so max_updates must be at least 1, found 0");
  }
  return job.device == Device::kCpu ? CheckNumericsOfCpu(job.numerics, "device is cpu") : Status();
}

template <typename To, typename From>
void TakeIfGiven(const std::optional<From>& from, To& to) {
  if (from) to = *from;
}

}  // namespace

Status CheckNumericsOfCpu(const Numerics& numerics, std::string_view why_cpu) {
  if (numerics.precision != Precision::kF32) {
    return Bad(StrCat("precision: CPUs compute in f32, found ", Name(numerics.precision), ", and ",
                      why_cpu));
  }
  if (numerics.tf32) {
    return Bad(StrCat("tf32: only GPUs round to TF32, expected false, found true, and ", why_cpu));
  }
  return {};
}

Result<Job> ParseJobText(std::string_view text, std::string_view file_name) {
  const auto refuse = [file_name](std::string_view separator, const std::string& message) {
    return Bad(StrCat(file_name, separator, message));
  };
  if (text.size() > kMaxTextBytes) {
    return refuse(": ", StrCat("the job text is too large: at most ", kMaxTextBytes,
                               " bytes, found ", text.size()));
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  proto::Job message;
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  const bool parsed = parser.ParseFromString(std::string(text), &message);
  if (errors.any()) return refuse(":", errors.Text());
  if (!parsed) return refuse(": ", "is not a job text");

  Result<Job> job = JobFromProto(message);
  if (!job.ok()) return std::move(job).status().WithContext(file_name);
  if (Status whole = CheckWholeJob(*job); !whole.ok()) {
    return std::move(whole).WithContext(file_name);
  }
  return job;
}

Result<Job> LoadJob(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, ErrorKind::kConfig));
  GACCD_ASSIGN_OR_RETURN(Job job, ParseJobText(text, path));
  job.data.job_folder = FolderOf(path);
  return job;
}

Result<Job> OverlayFlags(Job job, const Flags& flags) {
  TakeIfGiven(flags.target_batch, job.batch.target);
  TakeIfGiven(flags.micro_batch, job.batch.micro);
  TakeIfGiven(flags.rounding, job.batch.rounding);
  TakeIfGiven(flags.last_cycle, job.batch.last_cycle);
  TakeIfGiven(flags.lr_rule, job.batch.lr_rule);
  TakeIfGiven(flags.reference_batch, job.batch.reference);
  TakeIfGiven(flags.epochs, job.epochs);
  TakeIfGiven(flags.max_updates, job.max_updates);
  TakeIfGiven(flags.seed, job.seed);
  TakeIfGiven(flags.log_every, job.log_every);
  TakeIfGiven(flags.device, job.device);
  TakeIfGiven(flags.precision, job.numerics.precision);
  TakeIfGiven(flags.tf32, job.numerics.tf32);
  TakeIfGiven(flags.deterministic, job.numerics.deterministic);
  GACCD_RETURN_IF_ERROR(CheckWholeJob(job));
  return job;
}

Result<PlanRequest> ToPlanRequest(const BatchSpec& batch, std::int64_t nodes,
                                  std::int64_t gpus_per_node) {
  if (batch.target == 0) {
    return Status(ErrorKind::kUsage,
                  "the target batch is missing: give --target-batch=N, or batch.target in the job");
  }
  return PlanRequest{.nodes = nodes,
                     .gpus_per_node = gpus_per_node,
                     .micro_batch = batch.micro,
                     .target_batch = batch.target,
                     .rounding = batch.rounding,
                     .lr_rule = batch.lr_rule,
                     .reference_batch = batch.reference};
}

std::string JobDifferences(Job was, const Job& now) {
  was.name = now.name;
  was.log_every = now.log_every;
  proto::Job before;
  proto::Job after;
  FillJobProto(was, before);
  FillJobProto(now, after);
  std::string lines;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&lines);
  differencer.Compare(before, after);
  std::string text;
  for (std::size_t start = 0, end = 0; start < lines.size(); start = end + 1) {
    end = std::min(lines.find('\n', start), lines.size());
    std::string_view line = std::string_view(lines).substr(start, end - start);
    if (line.starts_with("modified: ")) line.remove_prefix(std::string_view("modified: ").size());
    text += StrCat(text.empty() ? "" : "; ", line);
  }
  return text;
}

std::string JobText(const Job& job) {
  proto::Job message;
  FillJobProto(job, message);
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return "# proto-file: proto/job.proto\n# proto-message: gaccd.proto.Job\n\n" + text;
}

std::string JobDigest(const Job& job, const Flags& flags) {
  // 0 and "" are no values that a flag can have.
  const std::string outside = StrCat(
      "nodes ", flags.nodes.value_or(0), "\ngpus_per_node ", flags.gpus_per_node.value_or(0),
      "\nstrict ", flags.strict, "\nallow_gpu_sharing ", flags.allow_gpu_sharing,
      "\ntime_algorithms ", flags.time_algorithms, "\nbound ", flags.bound_seconds, "\nheartbeat ",
      flags.heartbeat_seconds, "\nrun_dir ", flags.run_dir.value_or(""), "\ninit_weights ",
      flags.init_weights.value_or(""), "\nsave_weights ", flags.save_weights.value_or(""),
      "\nsave_every ", flags.save_every_updates, " ",
      flags.save_every_seconds.value_or(kDefaultSaveSeconds), "\nresume ", flags.resume, "\nkeep ",
      flags.keep, " ", flags.keep_every, "\nfailed_saves ", flags.failed_saves, "\ngroup_access ",
      flags.group_access, "\nstop_signals ", SignalNames(flags.stop_signals), "\nterm_budget ",
      flags.term_budget_seconds, "\non_nonfinite ", Name(flags.on_nonfinite), "\non_bad_record ",
      Name(flags.on_bad_record), " ", flags.bad_record_quota, "\ndigest_every ", flags.digest_every,
      "\n");
  return Digest(JobText(job) + outside);
}

std::string Digest(std::string_view text) {
  __extension__ using Word = unsigned __int128;
  constexpr auto kPrime = (Word{1} << 88) + 0x13b;
  Word hash = (Word{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= kPrime;
  }
  std::array<char, 32> digits{};
  for (std::size_t i = digits.size(); i-- > 0; hash >>= 4) {
    digits[i] = "0123456789abcdef"[static_cast<std::size_t>(hash & 15)];
  }
  return {digits.data(), digits.size()};
}

}  // namespace gaccd
