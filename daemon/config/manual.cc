#include "daemon/config/manual.h"

#include <set>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/help.h"
#include "daemon/config/help_entries.h"

namespace gaccd {
namespace {

constexpr std::string_view kManualHead =
    R"(.SH NAME
gaccd \- train neural networks on a SLURM cluster with an exact effective batch
.SH SYNOPSIS
.B gaccd
.I verb
[\-\-flag=value ...]
.SH VERBS
)";

// A backslash, a dash and a dot or an apostrophe at the start of a line mean something to roff.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else {
      if (c == '-') out += '\\';
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

std::string AsWritten(std::string_view text) { return StrCat(".nf\n", Roff(text), ".fi\n"); }

std::string Paragraphs(const std::vector<HelpEntry>& entries) {
  std::string out;
  for (const HelpEntry& entry : entries) {
    out += StrCat(".TP\n\\fB", Roff(entry.head), "\\fR\n", Roff(entry.text), "\n");
  }
  return out;
}

// "exact, floor, ceil or nearest" -> "exact floor ceil nearest"
std::string Words(std::string_view choices) {
  std::string words;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == ',') continue;
    if (choices.substr(i).starts_with(" or ")) i += 3;
    words += choices[i];
  }
  return words;
}

std::string VerbNames() {
  std::string names;
  for (const VerbRow& row : VerbTable()) names += StrCat(names.empty() ? "" : " ", row.name);
  return names;
}

// "optimizer.lr= batch.rounding= ...", and their values as cases.
struct JobFields {
  std::string names;
  std::string values;
};
JobFields MakeJobFields() {
  JobFields fields;
  for (const HelpEntry& entry : JobEntries()) {
    fields.names += StrCat(fields.names.empty() ? "" : " ", entry.head, "=");
    if (entry.choices.empty() || entry.head.find('[') != std::string::npos) continue;
    fields.values += StrCat("    ", entry.head, ") values=\"", Words(entry.choices), "\" ;;\n");
  }
  return fields;
}

// "    plan) flags=\"--nodes= --strict\" ;;" for every verb, and
// "    --rounding) values=\"exact floor\" ;;" for every flag with choices.
struct Cases {
  std::string flags;
  std::string values;
};
Cases MakeCases() {
  Cases cases;
  std::set<std::string> done;
  for (const VerbRow& row : VerbTable()) {
    std::string flags;
    for (const HelpGroup& group : FlagGroups(row.verb)) {
      for (const HelpEntry& entry : group.entries) {
        const std::string name = entry.head.substr(0, entry.head.find_first_of("= "));
        const bool takes_value = name.size() < entry.head.size() && name != "--set";
        flags += StrCat(flags.empty() ? "" : " ", name, takes_value ? "=" : "");
        if (entry.choices.empty() || !done.insert(name).second) continue;
        cases.values += StrCat("    ", name, ") values=\"", Words(entry.choices), "\" ;;\n");
      }
    }
    cases.flags += StrCat("    ", row.name, ") flags=\"", flags, "\" ;;\n");
  }
  return cases;
}

}  // namespace

std::string ManualPage() {
  std::string page = StrCat(".TH GACCD 1 \"\" \"gaccd ", GaccdVersion(), "\"\n", kManualHead);
  for (const VerbRow& row : VerbTable()) {
    page += StrCat(".TP\n\\fB", row.name, "\\fR\n", Roff(row.summary), "\n");
  }
  page += StrCat(".SH DESCRIPTION\n", AsWritten(HelpNotes()));
  for (const VerbRow& row : VerbTable()) {
    page += StrCat(".SH \"gaccd ", row.name, "\"\n", AsWritten(UsageOf(row.verb)));
    for (const HelpGroup& group : FlagGroups(row.verb)) {
      page += StrCat(".SS \"", Roff(group.heading), "\"\n", Paragraphs(group.entries));
    }
  }
  return StrCat(page, ".SH \"JOB TEXT\"\n", AsWritten(JobUsage()), Paragraphs(JobEntries()));
}

std::string BashCompletion() {
  const Cases cases = MakeCases();
  const JobFields fields = MakeJobFields();
  return StrCat(R"(# Completion of gaccd for bash: source <(gaccd help bash)
_gaccd() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} flag='' flags='' values=''
  COMPREPLY=()
  # Bash takes --flag=value apart at the equals sign.
  if [[ $word == "=" ]]; then
    flag=$before word=''
  elif [[ $before == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $before == "--set" ]]; then
    flag=$before
  fi
  if ((COMP_CWORD == 1)); then
    flags=")",
                VerbNames(), R"("
  elif [[ ${COMP_WORDS[1]} == help ]]; then
    flags=")",
                VerbNames(), R"( job man bash"
  elif [[ ${COMP_WORDS[1]} == ckpt && COMP_CWORD -eq 2 ]]; then
    flags="ls verify prune export"
  elif [[ -z $flag && $word != -* ]]; then
    return # a folder
  fi
  if [[ -n $flag ]]; then
    case $flag in
    --set) values=")",
                fields.names, R"(" ;;
)",
                fields.values, cases.values, R"(    esac
    [[ $flag != --set ]] || compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    return
  fi
  [[ -n $flags ]] || case ${COMP_WORDS[1]} in
)",
                cases.flags, R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o default -F _gaccd gaccd
)");
}

}  // namespace gaccd
