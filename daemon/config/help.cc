#include "daemon/config/help.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/help_entries.h"
#include "daemon/config/manual.h"

namespace gaccd {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kIndent = 24;  // of the text after a flag or a field

// The head, and to its right the text in lines of kWidth columns.
std::string Text(const HelpEntry& entry) {
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

std::string JobHelp() {
  std::string text(JobUsage());
  for (const HelpEntry& entry : JobEntries()) text += Text(entry);
  return text;
}

// "data.train.npy.path" -> data, train, npy, path
std::vector<std::string> NamesOf(const std::string& path) {
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
  for (const std::string& name : NamesOf(path)) text += StrCat(".", name);
  return text + ".";
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

std::string HelpOf(Verb verb) {
  std::string text = UsageOf(verb);
  for (const HelpGroup& group : FlagGroups(verb)) {
    text += StrCat("\n", group.heading, "\n");
    for (const HelpEntry& entry : group.entries) text += Text(entry);
  }
  return text;
}

}  // namespace

std::string UsageOf(Verb verb) {
  const VerbRow& row = VerbTable()[static_cast<std::size_t>(verb)];
  return StrCat("gaccd ", row.name, row.usage.starts_with('\n') ? "" : " ", row.usage);
}

Result<std::string> JobHelpOf(const std::string& word) {
  const std::string wanted = WithoutIndices(word);
  std::string exact;
  std::string near;
  std::vector<std::string> names;
  for (const HelpEntry& entry : JobEntries()) {
    if (WithoutIndices(entry.head).find(wanted) != std::string::npos) exact += Text(entry);
    if (entry.head.find(word) != std::string::npos) near += Text(entry);
    std::ranges::copy(NamesOf(entry.head), std::back_inserter(names));
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
      return !topic || *topic == Verb::kHelp ? Overview() : HelpOf(*topic);
    case HelpPage::kJob:
      return JobHelp();
    case HelpPage::kManual:
      return ManualPage();
    case HelpPage::kBash:
      return BashCompletion();
  }
  return {};
}

}  // namespace gaccd
