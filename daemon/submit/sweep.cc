#include "daemon/submit/sweep.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "collectives/base/strings.h"

namespace gaccd {
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
