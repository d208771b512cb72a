#include <google/protobuf/descriptor.h>

#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "daemon/config/flags.h"
#include "daemon/config/help.h"
#include "proto/field.pb.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;

constexpr std::string_view kNotes =
    R"(Without a verb, the verb is train inside a SLURM step or under mpirun, and plan
elsewhere. Without any argument, and outside of both, gaccd prints this text.

  gaccd --nodes 30 --target-batch 3072
  srun --mpi=pmix gaccd train --job=job.txtpb --run-dir=runs/a
  gaccd train --local-ranks=4 --job=job.txtpb --set optimizer.lr=0.01

--flagfile=FILE reads flags from a file, one per line; in it, flags of other
verbs are ignored. Dashes and underscores in flag names are equivalent.

Exit codes: 0 done, 64 usage, 65 data, 69 a peer is lost, 70 internal,
71 system, 74 input/output (also when the reader of the output closes the pipe),
75 stopped, to be requeued, 78 configuration, 93 failed for good or stopped by
the file STOP, 130 Ctrl-C twice.
)";

constexpr std::string_view kJobUsage = R"(The job text: what gaccd train --job=FILE reads.

Protobuf text (proto/job.proto): optimizer.lr is written optimizer { lr: 0.1 };
for layer[0], layer[1], ... write one layer { ... } after the other. Texts are
in quotes, choices in capitals with _ instead of -: last_cycle: CARRY. --set
overrides a field of the file:
  gaccd train --job=FILE --set optimizer.lr=0.01 --set model.layer[0].name=first
Relative paths start at the current folder or, if the file does not exist there,
at the folder of the job text. A '*' in the file name of each path of a source,
for example train-*.npy, joins all matching files to one set, sorted by the text
that the '*' matches.

)";

void Append(std::string& text, std::string_view part) {
  if (!part.empty()) text += StrCat(text.empty() ? "" : "; ", part);
}

std::string_view ValueName(const FieldDescriptor& field) {
  if (FieldRule(field).has_value()) return FieldRule(field).value();
  const bool choice = field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  return choice ? std::string_view("CHOICE") : std::string_view("N");
}

HelpEntry FlagEntry(const FlagRow& row, const VerbArguments& takes) {
  const bool choice = row.field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  const bool format = row.name == "format";
  std::string text = format   ? ListFormats(takes.first_format, takes.last_format)
                     : choice ? RangeText(*row.field)
                              : "";
  std::string help = FieldRule(*row.field).help();
  const std::string given = DefaultText(*row.field);
  const bool needed = format && takes.first_format != OutputFormat::kText;
  if (!given.empty() && given != "false" && !needed) {
    help += StrCat(" (default ", given, ")");
  }
  text += StrCat(text.empty() ? "" : ": ", help);
  const std::string value = row.is_bool() ? "" : StrCat("=", ValueName(*row.field));
  return {StrCat("--", row.name, value), std::move(text), choice ? RangeText(*row.field) : ""};
}

std::string_view TypeName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "{}";
    default:
      return {};
  }
}

HelpEntry JobEntry(const NamedField& leaf) {
  std::string what(TypeName(*leaf.field));
  const std::string range = RangeText(*leaf.field);
  what += StrCat(what.empty() || range.empty() ? "" : " ", range);
  const std::string given = DefaultText(*leaf.field);
  Append(what, FieldRule(*leaf.field).required() ? "required" : "");
  Append(what, given.empty() ? "" : StrCat("default ", given));
  Append(what, FieldRule(*leaf.field).help());
  const std::string& flag = FieldRule(*leaf.field).flag();
  Append(what, flag.empty() ? "" : StrCat("--", flag));
  const bool choice = leaf.field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  return {leaf.path, std::move(what), choice ? range : ""};
}

}  // namespace

std::string_view HelpNotes() { return kNotes; }

std::string_view JobUsage() { return kJobUsage; }

std::vector<HelpGroup> FlagGroups(Verb verb) {
  constexpr std::string_view kHeadings[] = {"Flags",   "Checkpoints", "Stopping and errors",
                                            "Cluster", "Batch",       "Devices"};
  std::vector<HelpGroup> groups;
  for (int number = 0; number < proto::Field::Group_ARRAYSIZE; ++number) {
    HelpGroup group{kHeadings[number], {}};
    for (const FlagRow& row : FlagTable()) {
      if (row.IsListedFor(verb) && FieldRule(*row.field).group() == number) {
        group.entries.push_back(FlagEntry(row, GetVerbRow(verb).takes));
      }
    }
    if (number == 0 &&
        FindFlag("job")->IsListedFor(verb)) {  // verbs for which ParseFlags accepts --set
      group.entries.push_back({"--set FIELD=VALUE",
                               "override a field of the job, for example "
                               "optimizer.lr=0.01; may be given several times",
                               ""});
    }
    if (!group.entries.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<HelpEntry> JobEntries() {
  std::vector<HelpEntry> entries;
  for (const NamedField& leaf : LeafFields(*proto::Job::descriptor())) {
    entries.push_back(JobEntry(leaf));
  }
  return entries;
}

}  // namespace gaccd
