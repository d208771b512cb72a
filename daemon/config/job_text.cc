#include "daemon/config/job_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/fields.h"
#include "daemon/config/job_checks.h"
#include "daemon/config/target_schedule.h"
#include "proto/field.pb.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

// "; Job has it: is a } missing before?" for a field of another message of the job; else empty.
std::string FindOwner(const std::string& field, const google::protobuf::Descriptor& type) {
  for (const auto* outer : {proto::Job::descriptor(), proto::Model::descriptor()}) {
    if (outer == &type || outer->FindFieldByName(field) == nullptr) continue;
    return StrCat("; ", outer->name(), " has it: is a } missing before?");
  }
  return {};
}

// For protobuf's 'Message type "gaccd.proto.Layer" has no field named "rleu".', with the fields
// that it has.
std::string ExplainField(const std::string& type_name, const std::string& field) {
  const auto* type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type_name);
  std::vector<std::string_view> fields;
  std::string list;
  for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
    fields.emplace_back(type->field(i)->name());
    list += StrCat(i == 0 ? "" : ", ", fields.back());
  }
  if (type == nullptr) return StrCat("unknown field '", field, "'");
  const std::string owner = FindOwner(field, *type);
  return StrCat("unknown field '", field, "'",
                owner.empty() ? Suggestion(field, fields) : std::string(), "; ", type->name(),
                " has ", fields.empty() ? "no fields" : list, owner);
}

// "precision: expected one of F32, BF16, FP16, found bf16"
std::string ExplainChoice(const std::string& field_name, const std::string& found) {
  const auto& file = *proto::Job::descriptor()->file();
  for (int i = 0; i < file.message_type_count(); ++i) {
    const auto* field = file.message_type(i)->FindFieldByName(field_name);
    if (field == nullptr || field->enum_type() == nullptr) continue;
    std::string list;  // fields of one name have the same type
    for (int j = 0; j < field->enum_type()->value_count(); ++j) {
      list += StrCat(j == 0 ? "" : ", ", field->enum_type()->value(j)->name());
    }
    return StrCat(field_name, ": expected one of ", list, ", found ", found);
  }
  return StrCat(field_name, ": unknown choice ", found);
}

// The text in the two gaps of "<before>...<between>...<after>"; none for another text.
std::optional<std::pair<std::string, std::string>> FindTwo(std::string_view text,
                                                           std::string_view before,
                                                           std::string_view between,
                                                           std::string_view after) {
  if (!text.starts_with(before) || !text.ends_with(after)) return {};
  text.remove_prefix(before.size());
  const std::size_t gap = text.find(between);
  if (gap == std::string_view::npos || gap + between.size() + after.size() > text.size()) return {};
  const std::string_view second = text.substr(gap + between.size());
  return std::pair(std::string(text.substr(0, gap)),
                   std::string(second.substr(0, second.size() - after.size())));
}

// For protobuf's "Expected integer, got: one"; empty for another message.
std::string ExplainExpected(const std::string& message) {
  constexpr std::size_t kMaxShown = 60;
  struct Row {
    std::string_view prefix, expected, with_quotes;
  };
  constexpr Row kRows[] = {
      {"Expected integer, got: ", "a whole number", "; numbers have no quotes"},
      {"Expected double, got: ", "a number", "; numbers have no quotes"},
      {"Expected identifier, got: ", "the name of a field", "; names of fields have no quotes"},
      {"Expected \"{\", found \"", "{", ""}};
  for (const auto& [prefix, expected, with_quotes] : kRows) {
    if (!message.starts_with(prefix) || message.size() > prefix.size() + kMaxShown) continue;
    std::string found = message.substr(prefix.size());
    if (expected == "{") {
      found.resize(found.size() - std::min<std::size_t>(found.size(), 2));  // without ".
      return StrCat("expected {, found ", found,
                    "; a group has braces, also an empty one: relu {}");
    }
    if (found.empty()) found = "the end of the text";
    return StrCat("expected ", expected, ", found ", found,
                  found[0] == '"' || found[0] == '\'' ? with_quotes : "");
  }
  return {};
}

// protobuf's message, rewritten for users of job texts.
std::string ExplainError(const std::string& message) {
  constexpr std::string_view kText = "Expected string, got: ";
  constexpr std::size_t kMaxShown = 60;
  if (const auto unknown = FindTwo(message, "Message type \"", "\" has no field named \"", "\".")) {
    return ExplainField(unknown->first, unknown->second);
  }
  if (const auto choice =
          FindTwo(message, "Unknown enumeration value of \"", "\" for field \"", "\".")) {
    return ExplainChoice(choice->second, choice->first);
  }
  if (const auto both = FindTwo(message, "Field \"", "\" is specified along with field \"", ".")) {
    const std::string first = both->second.substr(0, both->second.find('"'));
    return StrCat("expected one of ", first, " and ", both->first, ", found both");
  }
  if (const auto value =
          FindTwo(message, "Invalid value for boolean field \"", "\". Value: \"", "\".")) {
    return StrCat(value->first, ": expected true or false, found ", value->second);
  }
  if (const std::string text = ExplainExpected(message); !text.empty()) return text;
  if (message.starts_with("Interpreting non ascii")) {
    return "expected ASCII outside of texts; the quotes of a text are \" or '";
  }
  if (!message.starts_with(kText) || message.size() > kText.size() + kMaxShown) return message;
  const std::string text = message.substr(kText.size());
  return StrCat("expected a text in quotes, \"", text, "\", found ", text);
}

// The line of the last unclosed {, from 1; 0: all are closed, or there is an extra }.
int FindOpenBrace(std::string_view text) {
  std::vector<int> open;
  int line = 1;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      quote = 0;
    } else if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '{') {
      open.push_back(line);
    } else if (c == '}') {
      if (open.empty()) return 0;
      open.pop_back();
    }
  }
  return open.empty() ? 0 : open.back();
}

// Keeps the first error of the parser, which causes most of the later ones, and counts the others.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (++count_ > 1) return;
    // Both count from 0; line -1: the whole text.
    if (line >= 0) text_ = StrCat(line + 1, ":", column + 1, ": ");
    text_ += ExplainError(message);
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

Status ConfigError(const std::string& message) { return {ErrorKind::kConfig, message}; }

// Whether a file has this name or matches this pattern.
bool HasFile(const std::string& path) {
  if (PathExists(path)) return true;
  const auto files = Glob(path);
  return files.ok() && !files->empty();
}

// The absolute path of the file in the current folder, or else in `folder`; `path` if there is
// none.
std::string LocateFile(const std::string& path, const std::string& folder) {
  for (const std::string& place : {std::string("."), folder}) {
    const std::filesystem::path here = std::filesystem::path(place) / path;
    if (!place.empty() && HasFile(here)) return AbsolutePath(here.string());
  }
  return path;
}

// Replaces every path of a job by the result of `change`.
using ChangePath = std::function<std::string(const std::string& path)>;

void ChangePaths(google::protobuf::Message& message, const ChangePath& change) {
  const auto& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 0;
      for (int i = 0; i < count; ++i) {
        ChangePaths(*reflection.MutableRepeatedMessage(&message, field, i), change);
      }
      if (!field->is_repeated()) {
        ChangePaths(*reflection.MutableMessage(&message, field), change);
      }
    } else if (field->options().GetExtension(proto::field).text() == proto::Field::PATH) {
      reflection.SetString(&message, field, change(reflection.GetString(message, field)));
    }
  }
}

}  // namespace

Result<Job> ParseJobText(std::string_view text, std::string_view file_name, Verb verb) {
  const auto refuse = [file_name](std::string_view separator, const std::string& message) {
    return ConfigError(StrCat(file_name, separator, message));
  };
  if (text.size() > kMaxTextBytes) {
    return refuse(": ", StrCat("the job text is too large: at most ", kMaxTextBytes,
                               " bytes, found ", text.size()));
  }
  text = WithoutByteOrderMark(text);
  proto::Job message;
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  const bool parsed = parser.ParseFromString(std::string(text), &message);
  if (errors.any()) {
    const int open = FindOpenBrace(text);
    return refuse(":", StrCat(errors.Text(),
                              open > 0 ? StrCat("; the { of line ", open, " is not closed") : ""));
  }
  if (!parsed) return refuse(": ", "is not a job text");

  GACCD_RETURN_IF_ERROR(CheckFields(message).WithContext(file_name));
  const proto::Batch& batch = message.batch();
  Job job{FromProto(message),
          "",
          {.micro = batch.has_micro(),
           .rounding = batch.has_rounding(),
           .lr_rule = batch.has_lr_rule()}};
  GACCD_RETURN_IF_ERROR(CheckOneArchitecture(job.model).WithContext(file_name));
  GACCD_RETURN_IF_ERROR(CheckJob(job, verb).WithContext(file_name));
  return job;
}

Result<Job> LoadJob(const std::string& path, Verb verb) {
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, ErrorKind::kConfig));
  GACCD_ASSIGN_OR_RETURN(Job job, ParseJobText(text, path, verb));
  job.folder = ParentFolder(path);
  return job;
}

Result<Job> OverlayFlags(Job job, const Flags& flags) {
  proto::Job message = ToProto(job);
  for (const JobField& field : flags.job_fields) {
    GACCD_RETURN_IF_ERROR(SetField(message, field.path, field.value, ListElement::kMustExist)
                              .WithContext(field.given));
  }
  // Without a job text there are only flags and defaults, and no model.
  if (!job.name.empty()) GACCD_RETURN_IF_ERROR(CheckFields(message));
  Job changed{FromProto(message), job.folder, job.given};
  // --pipeline=1: the blocks of the job's stages are not needed.
  const bool undivided = job.pipeline.stages > 1 && changed.pipeline.stages == 1;
  if (undivided) changed.pipeline.blocks.clear();
  GACCD_RETURN_IF_ERROR(CheckJob(changed, flags.verb));
  GACCD_RETURN_IF_ERROR(CheckGivenJob(changed));
  return changed;
}

Job WithAbsolutePaths(const Job& job) {
  proto::Job message = ToProto(job);
  ChangePaths(message, [&](const std::string& path) { return LocateFile(path, job.folder); });
  return {FromProto(message), job.folder, job.given};
}

std::string WithAbsolutePath(const std::string& setting, const std::string& folder) {
  const std::size_t end = setting.find('=');
  if (end == std::string::npos) return setting;
  const std::string field = setting.substr(0, end);
  std::string value = setting.substr(end + 1);
  proto::Job any;
  if (!SetField(any, field, value, ListElement::kAny).ok()) return setting;
  ChangePaths(any, [&](const std::string& path) { return value = LocateFile(path, folder); });
  return StrCat(field, "=", value);
}

std::vector<std::string> MissingFiles(const Job& job) {
  std::vector<std::string> missing;
  proto::Job message = ToProto(job);
  ChangePaths(message, [&](const std::string& path) {
    const bool here = HasFile(path) || (!job.folder.empty() && HasFile(job.folder + "/" + path));
    if (!here && std::ranges::find(missing, path) == missing.end()) missing.push_back(path);
    return path;
  });
  return missing;
}

bool ReadsFile(const Job& job, const std::string& file) {
  bool reads = false;
  const auto compare = [&](const std::string& path) {
    std::error_code error;
    reads = reads || std::filesystem::equivalent(path, file, error);
  };
  proto::Job message = ToProto(job);
  ChangePaths(message, [&](const std::string& path) {
    for (const std::string& one : {path, job.folder.empty() ? path : job.folder + "/" + path}) {
      if (!IsPattern(one)) {
        compare(one);
      } else if (const auto found = Glob(one); found.ok()) {
        for (const auto& [text, match] : *found) compare(match);
      }
    }
    return path;
  });
  return reads;
}

Result<PlanRequest> ToPlanRequest(const BatchSpec& batch, std::int64_t nodes,
                                  std::int64_t gpus_per_node) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t target, FirstTarget(batch));
  // The reference of all stages of a target schedule is the target of the first one.
  const bool same = batch.reference == 0 && batch.target_schedule;
  return PlanRequest{.nodes = nodes,
                     .gpus_per_node = gpus_per_node,
                     .micro_batch = batch.micro,
                     .target_batch = target,
                     .rounding = batch.rounding,
                     .lr_rule = batch.lr_rule,
                     .reference_batch = same ? target : batch.reference,
                     .recompute = batch.recompute.value_or(Recompute::kNone),
                     .bits = batch.bits};
}

std::string JobText(const Job& job) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(ToProto(job), &text);
  return "# proto-file: proto/job.proto\n# proto-message: gaccd.proto.Job\n\n" + text;
}

std::string JobDigest(const Job& job, const Flags& flags) {
  return Digest(JobText(job) + SharedFlagsText(flags));
}

std::string Digest(std::string_view text) {
  const Fnv128 hash = Fnv1a128(text);
  return Hex(hash.high) + Hex(hash.low);
}

}  // namespace gaccd
