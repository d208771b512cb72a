#include "daemon/submit/sbatch_script.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/inspect/watch/advice.h"

namespace gaccd {

namespace {

bool IsSafe(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

// srun and sbatch replace patterns like %j.
std::string WithoutPatterns(std::string_view path) {
  std::string text;
  for (const char c : path) text += c == '%' ? "%%" : std::string(1, c);
  return text;
}

std::string Words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + ShellWord(word);
  return text;
}

std::string Directive(std::string_view name, std::string_view value) {
  return value.empty() ? std::string() : StrCat("#SBATCH --", name, "=", SbatchWord(value), "\n");
}

// Without more_flags.
std::string OwnDirectives(const SbatchScript& script) {
  const bool array = !script.tasks.empty();
  std::string text = Directive("job-name", script.job_name);
  text += Directive("nodes", StrCat(script.nodes));
  text += Directive("ntasks-per-node", StrCat(script.ranks_per_node));
  if (script.gpus) {
    // A task sees all GPUs of its node; adjacent ranks are on the same socket.
    text += Directive("gpus-per-node", StrCat(script.ranks_per_node));
    text += Directive("distribution", "block:block");
  }
  text += Directive("time", script.time);
  text += Directive("partition", script.partition);
  text += Directive("account", script.account);
  text += Directive("exclude", script.exclude);
  if (array) text += Directive("array", StrCat("0-", script.tasks.size() - 1));
  text += script.expedite ? "#SBATCH --requeue=expedite\n" : "#SBATCH --requeue\n";
  if (!script.requeue_note.empty()) text += StrCat("# ", script.requeue_note, "\n");
  text += "#SBATCH --open-mode=append\n";
  text += Directive(
      "output", WithoutPatterns(script.folder) + (array ? "/slurm-%A_%a.out" : "/slurm-%j.out"));
  text += StrCat("# ", script.lead_reason, "\n");
  if (script.lead_s > 0) text += Directive("signal", StrCat(script.signal, "@", script.lead_s));
  return text;
}

std::string Directives(const SbatchScript& script) {
  std::string text = OwnDirectives(script);
  if (script.more_flags.empty()) return text;
  text += "#SBATCH";
  for (const std::string& word : script.more_flags) text += " " + SbatchWord(word);
  return text + "\n";
}

// Bash code that selects the run of a task of an array.
std::string ChooseTask(const SbatchScript& script) {
  std::string text = "case ${SLURM_ARRAY_TASK_ID:-} in\n";
  for (std::size_t i = 0; i < script.tasks.size(); ++i) {
    const SweepTask& task = script.tasks[i];
    text += StrCat("  ", i, ") run=", ShellWord(task.folder), " values=(",
                   Words(task.train_arguments).substr(1), ") ;;\n");
  }
  return StrCat(text, "  *) echo \"gaccd: expected a task of the array, 0 to ",
                script.tasks.size() - 1,
                ", found '${SLURM_ARRAY_TASK_ID:-}'\" >&2; exit 78 ;;\nesac\n",
                "export GACCD_RUN_DIR=", ShellWord(script.folder), "/$run\n");
}

}  // namespace

std::string Render(const SbatchScript& script) {
  const bool array = !script.tasks.empty();
  std::string text = StrCat("#!/bin/bash\n# Written by gaccd submit: ", script.plan, "\n",
                            "# To run it again: sbatch this file. Flags after it go to the "
                            "training and override those below.\n",
                            Directives(script), "\n");
  for (const auto& [name, value] : script.variables) {
    text += StrCat("export ", name, "=", ShellWord(value), "\n");
  }
  text +=
      array ? ChooseTask(script) : StrCat("export GACCD_RUN_DIR=", ShellWord(script.folder), "\n");
  if (script.chain) {
    text +=
        "# A job that waited for the one before has nothing to do where that completed the run.\n"
        "if [[ -n ${SLURM_JOB_DEPENDENCY:-} && -e $GACCD_RUN_DIR/DONE ]]; then\n"
        "  echo 'gaccd: nothing to do: an earlier job has completed the training'\n"
        "  exit 0\n"
        "fi\n";
  }
  text += StrCat("cd -- ", ShellWord(script.work_folder), " || exit 74\n");
  const auto file = [&](std::string_view name) { return ShellWord(StrCat(script.folder, name)); };
  return StrCat(text, "exec bash ", file(kLaunchFile), " ", file(kJobFile),
                Words(script.train_arguments), array ? " \"${values[@]}\"" : "", " \"$@\"\n");
}

std::vector<std::string> OverridingVariables(const SbatchScript& script) {
  // For options whose variables have other names, that have a letter, or that variables of other
  // options would replace or contradict.
  static const std::vector<std::string> kMemory = {"MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"};
  static const std::vector<std::string> kGpus = {"GPUS_PER_NODE", "GPUS", "GPUS_PER_TASK",
                                                 "GPUS_PER_SOCKET"};
  static const std::map<std::string_view, std::vector<std::string>> kOthers = {
      {"array", {"ARRAY_INX"}},
      {"gpus", kGpus},
      {"gpus-per-node", kGpus},
      {"mem", kMemory},
      {"mem-per-cpu", kMemory},
      {"mem-per-gpu", kMemory},
      {"switches", {"REQ_SWITCH"}},
      {"time", {"TIMELIMIT"}},
      {"-A", {"ACCOUNT"}},
      {"-C", {"CONSTRAINT"}},
      {"-G", kGpus},
      {"-J", {"JOB_NAME"}},
      {"-M", {"CLUSTERS"}},
      {"-e", {"ERROR"}},
      {"-m", {"DISTRIBUTION"}},
      {"-o", {"OUTPUT"}},
      {"-p", {"PARTITION"}},
      {"-q", {"QOS"}},
      {"-t", {"TIMELIMIT"}},
      {"requeue", {"REQUEUE", "NO_REQUEUE"}},
      {"no-requeue", {"REQUEUE", "NO_REQUEUE"}}};
  std::vector<std::string> names;
  std::istringstream own(OwnDirectives(script));
  std::vector<std::string> words{std::istream_iterator<std::string>(own), {}};
  words.insert(words.end(), script.more_flags.begin(), script.more_flags.end());
  for (const std::string& word : words) {
    if (!word.starts_with('-') || word.size() < 2) continue;
    std::string option = word[1] == '-' ? word.substr(2, word.find('=') - 2) : word.substr(0, 2);
    if (const auto other = kOthers.find(option); other != kOthers.end()) {
      for (const std::string& name : other->second) names.push_back("SBATCH_" + name);
      continue;
    }
    std::ranges::transform(option, option.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    names.push_back("SBATCH_" + option);
  }
  return names;
}

std::string SbatchWord(std::string_view text) {
  const auto is_plain = [](char c) {
    return IsSafe(c) || static_cast<unsigned char>(c) >= 0x80 ||
           std::string_view("/=:,@%+~").find(c) != std::string_view::npos;
  };
  const bool quoted = !std::ranges::all_of(text, is_plain) || text.starts_with(':');
  std::string word = quoted ? "\"" : "";
  char before = ' ';
  for (const char c : text) {
    const bool begins_component =
        (c == 'j' || c == 'J') && std::string_view("tTkK").find(before) != std::string_view::npos;
    if (c == '"' || c == '\\' || begins_component) word += '\\';
    word += before = c;
  }
  return quoted ? word + '"' : word;
}

std::optional<std::string> FindOption(const std::vector<std::string>& words, std::string_view name,
                                      char letter) {
  const std::string short_name{'-', letter};
  const std::string with_value = StrCat(name, "=");
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == name || word == short_name) {
      if (i + 1 < words.size()) value = words[++i];
    } else if (word.starts_with(with_value)) {
      value = word.substr(with_value.size());
    } else if (word.starts_with(short_name)) {
      value = word.substr(short_name.size());
    }
  }
  return value;
}

std::string SafeJobName(std::string_view run) {
  std::string name(run);
  std::ranges::replace_if(
      name, [](char c) { return !IsSafe(c); }, '_');
  return name;
}

bool HasControlCharacters(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return (c >= 0 && c < 0x20) || c == 0x7F; });
}

Status CheckRunFolder(std::string_view path) {
  bool pattern = false;
  for (std::size_t at = path.find('%'); at < path.size(); at = path.find('%', at + 1)) {
    const char next = at + 1 < path.size() ? path[at + 1] : ' ';
    pattern = pattern || next == '%' || std::isdigit(static_cast<unsigned char>(next)) != 0;
  }
  if (!pattern && path.find('\\') == std::string_view::npos && !HasControlCharacters(path)) {
    return {};
  }
  return {ErrorKind::kUsage,
          StrCat("SLURM cannot write its files in '", path,
                 "': expected a path without control characters, \\, %% and %0 to %9")};
}

namespace {

constexpr std::size_t kMaxNameLength = 120;

std::string MakeFolderName(std::size_t number, std::size_t digits, const SweepTask& task) {
  std::string name = StrCat(number);
  name.insert(0, digits - name.size(), '0');
  char separator = '-';
  for (const JobField& field : task.job_fields) {
    name += StrCat(separator, field.path, "=", field.value);
    separator = '+';
  }
  std::ranges::replace_if(
      name,
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view("._=+-").find(c) == std::string_view::npos;
      },
      '_');
  return name.substr(0, kMaxNameLength);
}

}  // namespace

Result<std::vector<SweepTask>> MakeSweep(const std::vector<SweptField>& fields) {
  if (fields.empty()) return std::vector<SweepTask>();
  std::vector<SweepTask> tasks(1);
  for (const SweptField& field : fields) {
    std::set<std::string> values;
    for (const std::string& value : field.values) {
      if (values.insert(value).second) continue;
      return Status(ErrorKind::kUsage,
                    StrCat("--array: expected different values of ", field.path, ", found ", value,
                           " twice: two runs would be equal"));
    }
    if (tasks.size() * field.values.size() > kMaxSweepTasks) {
      return Status(ErrorKind::kUsage, StrCat("--array: at most ", kMaxSweepTasks,
                                              " combinations of values, found more"));
    }
    std::vector<SweepTask> next_tasks;
    for (const SweepTask& task : tasks) {
      for (const std::string& value : field.values) {
        next_tasks.push_back(task);
        const std::string setting = StrCat(field.path, "=", value);
        next_tasks.back().train_arguments.insert(next_tasks.back().train_arguments.end(),
                                                 {"--set", setting});
        next_tasks.back().job_fields.push_back({field.path, value, "--set " + setting});
      }
    }
    tasks = std::move(next_tasks);
  }
  const std::size_t digits = StrCat(tasks.size() - 1).size();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].folder = MakeFolderName(i, digits, tasks[i]);
  }
  return tasks;
}

}  // namespace gaccd
