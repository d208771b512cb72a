#include "daemon/config/help.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/revision.h"

namespace gaccd {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kIndent = 24;  // of the description

constexpr std::string_view kManualHead =
    R"(.SH NAME
gaccd \- train neural networks on a SLURM cluster with an exact effective batch
.SH SYNOPSIS
.B gaccd
.I verb
[\-\-flag=value ...]
.SH VERBS
)";

// The head, followed by the text, indented and wrapped at kWidth columns.
std::string TerminalEntry(const HelpEntry& entry) {
  std::string_view text = entry.text;
  std::string out = StrCat("  ", entry.head);
  std::size_t column = out.size();
  if (column + 2 > kIndent && !text.empty()) {
    out += '\n';
    column = 0;
  }
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (!first && column + 1 + word.size() > kWidth) {
      out += '\n';
      column = 0;
    }
    const std::size_t blanks = column < kIndent ? kIndent - column : 1;
    out += StrCat(std::string(blanks, ' '), word);
    column += blanks + word.size();
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    first = false;
  }
  return out + "\n";
}

// Escapes backslashes, dashes, and dots and apostrophes at the start of a line.
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

std::string RoffUsage(std::string_view text) { return StrCat(".nf\n", Roff(text), ".fi\n"); }

std::string RoffEntry(const HelpEntry& entry) {
  return StrCat(".TP\n\\fB", Roff(entry.head), "\\fR\n", Roff(entry.text), "\n");
}

// Formats the parts of a section, for a terminal or the manual page.
struct Style {
  std::string (*usage)(std::string_view text);
  std::string (*heading)(std::string_view text);
  std::string (*entry)(const HelpEntry& entry);
};
constexpr Style kTerminal{[](std::string_view text) { return std::string(text); },
                          [](std::string_view text) { return StrCat("\n", text, "\n"); },
                          TerminalEntry};
constexpr Style kRoff{RoffUsage,
                      [](std::string_view text) { return StrCat(".SS \"", Roff(text), "\"\n"); },
                      RoffEntry};

std::string VerbSection(const VerbRow& row, const Style& style) {
  const std::string_view blank = row.usage.starts_with('\n') ? "" : " ";
  std::string text = style.usage(StrCat("gaccd ", row.name, blank, row.usage));
  for (const HelpGroup& group : FlagGroups(row.verb)) {
    text += style.heading(group.heading);
    for (const HelpEntry& entry : group.entries) text += style.entry(entry);
  }
  return text;
}

std::string JobSection(const Style& style) {
  std::string text = style.usage(JobUsage());
  for (const HelpEntry& entry : JobEntries()) text += style.entry(entry);
  return text;
}

std::string Overview() {
  std::string text =
      "gaccd trains a neural network on a SLURM cluster with an exact batch.\n\n"
      "  gaccd <verb> [--flag=value ...]\n\n";
  for (const VerbRow& row : VerbTable()) {
    text += StrCat("  ", row.name, std::string(10 - row.name.size(), ' '), row.summary, "\n");
  }
  return StrCat(text, "\n", HelpNotes());
}

// gaccd.1: every verb with its flags, and the fields of the job text, in the macros of man(7).
std::string ManualPage() {
  std::string verbs;
  std::string sections;
  for (const VerbRow& row : VerbTable()) {
    verbs += RoffEntry({std::string(row.name), std::string(row.summary), ""});
    sections += StrCat(".SH \"gaccd ", row.name, "\"\n", VerbSection(row, kRoff));
  }
  return StrCat(".TH GACCD 1 \"\" \"gaccd ", GaccdVersion(), "\"\n", kManualHead, verbs,
                ".SH DESCRIPTION\n", RoffUsage(HelpNotes()), sections, ".SH \"JOB TEXT\"\n",
                JobSection(kRoff));
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

// `    --rounding) values="exact floor" ;;`; empty if any value is valid.
std::string ValuesCase(std::string_view name, std::string_view choices) {
  if (choices.empty()) return {};
  return StrCat("    ", name, ") values=\"", Words(choices), "\" ;;\n");
}

void AddWord(std::string& words, std::string_view word) {
  words += StrCat(words.empty() ? "" : " ", word);
}

// The flags of its help; for submit also those of train, which it accepts. Flags of both appear
// only once: bash would show duplicates.
std::vector<HelpEntry> CompletedFlags(Verb verb) {
  std::vector<HelpGroup> groups = FlagGroups(verb);
  if (verb == Verb::kSubmit) {
    std::ranges::move(FlagGroups(Verb::kTrain), std::back_inserter(groups));
  }
  std::vector<HelpEntry> flags;
  std::set<std::string> heads;
  for (HelpGroup& group : groups) {
    for (HelpEntry& entry : group.entries) {
      if (heads.insert(entry.head).second) flags.push_back(std::move(entry));
    }
  }
  return flags;
}

struct Completion {
  std::string verbs;    // "plan train"
  std::string actions;  // a branch for every verb with actions
  std::string fields;   // "optimizer.lr= batch.rounding="
  std::string flags;    // a case for every verb: `    plan) flags="--nodes= --strict" ;;`
  std::string values;   // a case for every field and flag with choices
};
Completion MakeCompletion() {
  Completion known;
  for (const HelpEntry& entry : JobEntries()) {
    AddWord(known.fields, StrCat(entry.head, "="));
    const bool in_list = entry.head.find('[') != std::string::npos;
    if (!in_list) known.values += ValuesCase(entry.head, entry.choices);
  }
  std::set<std::string> done;
  for (const VerbRow& row : VerbTable()) {
    AddWord(known.verbs, row.name);
    if (!row.takes.actions.empty()) {
      known.actions +=
          StrCat("  elif [[ ${COMP_WORDS[1]} == ", row.name,
                 " && COMP_CWORD -eq 2 ]]; then\n    flags=\"", row.takes.actions, "\"\n");
    }
    std::string flags;
    for (const HelpEntry& entry : CompletedFlags(row.verb)) {
      const std::string name = entry.head.substr(0, entry.head.find_first_of("= "));
      const bool takes_value = name.size() < entry.head.size() && name != "--set";
      AddWord(flags, StrCat(name, takes_value ? "=" : ""));
      if (done.insert(name).second) known.values += ValuesCase(name, entry.choices);
    }
    known.flags += StrCat("    ", row.name, ") flags=\"", flags, "\" ;;\n");
  }
  return known;
}

// A script that completes verbs, flags, choices of values, and file names.
std::string BashCompletion() {
  const Completion known = MakeCompletion();
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
                known.verbs, R"("
  elif [[ ${COMP_WORDS[1]} == help ]]; then
    flags=")",
                known.verbs, R"( job man bash"
)",
                known.actions, R"(  elif [[ -z $flag && $word != -* ]]; then
    return # a folder
  fi
  if [[ -n $flag ]]; then
    case $flag in
    --set) values=")",
                known.fields, R"(" ;;
)",
                known.values, R"(    esac
    [[ $flag != --set ]] || compopt -o nospace
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    return
  fi
  [[ -n $flags ]] || case ${COMP_WORDS[1]} in
)",
                known.flags, R"(  esac
  mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o default -F _gaccd gaccd
)");
}

// "data.train.npy.path" -> data, train, npy, path
std::vector<std::string> SplitPath(const std::string& path) {
  std::vector<std::string> names(1);
  for (const char c : path) {
    if (c == '.') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  for (std::string& name : names) name = name.substr(0, name.find('['));
  return names;
}

std::string WithoutIndices(const std::string& path) {
  std::string text;
  for (const std::string& name : SplitPath(path)) text += StrCat(".", name);
  return text + ".";
}

}  // namespace

Result<std::string> JobFieldHelp(const std::string& word) {
  const std::string wanted = WithoutIndices(word);
  std::string exact;
  std::string near;
  std::vector<std::string> names;
  for (const HelpEntry& entry : JobEntries()) {
    if (WithoutIndices(entry.head).find(wanted) != std::string::npos) exact += TerminalEntry(entry);
    if (entry.head.find(word) != std::string::npos) near += TerminalEntry(entry);
    std::ranges::copy(SplitPath(entry.head), std::back_inserter(names));
  }
  if (!exact.empty() || !near.empty()) return exact.empty() ? near : exact;
  const std::vector<std::string_view> known(names.begin(), names.end());
  return Status(ErrorKind::kUsage,
                StrCat("the job has no field or group '", word, "'", Suggestion(word, known),
                       "; gaccd help job: all of them"));
}

std::string HelpText(HelpPage page, std::optional<Verb> topic) {
  switch (page) {
    case HelpPage::kVerb:
      if (!topic) return Overview();
      return VerbSection(GetVerbRow(*topic), kTerminal);
    case HelpPage::kJob:
      return JobSection(kTerminal);
    case HelpPage::kManual:
      return ManualPage();
    case HelpPage::kBash:
      return BashCompletion();
  }
  return {};
}

}  // namespace gaccd
