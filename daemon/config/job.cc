#include "daemon/config/job.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <variant>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "daemon/config/job_text.h"
#include "proto/field.pb.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;
using Path = std::vector<MessageDifferencer::SpecificField>;

// The option `resume` of the innermost field of the path that has one.
proto::Field::Resume Meaning(const Path& path) {
  proto::Field::Resume meaning = proto::Field::REPORTED;
  for (const auto& part : path) {
    const proto::Field& rule = FieldRule(*part.field);
    if (rule.has_resume()) meaning = rule.resume();
  }
  return meaning;
}

// Passes each difference to the reporter for its Meaning().
class ReporterByMeaning : public MessageDifferencer::Reporter {
 public:
  ReporterByMeaning(Reporter* other_run, Reporter* reported)
      : other_run_(other_run), reported_(reported) {}

  void ReportAdded(const Message& was, const Message& now, const Path& path) override {
    if (Reporter* to = Select(path)) to->ReportAdded(was, now, path);
  }
  void ReportDeleted(const Message& was, const Message& now, const Path& path) override {
    if (Reporter* to = Select(path)) to->ReportDeleted(was, now, path);
  }
  void ReportModified(const Message& was, const Message& now, const Path& path) override {
    if (Reporter* to = Select(path)) to->ReportModified(was, now, path);
  }

 private:
  [[nodiscard]] Reporter* Select(const Path& path) const {
    switch (Meaning(path)) {
      case proto::Field::SAME:
        return other_run_;
      case proto::Field::REPORTED:
        return reported_;
      case proto::Field::FREE:
        break;
    }
    return nullptr;
  }

  Reporter* other_run_;
  Reporter* reported_;
};

// "modified: epochs: 1 -> 4\nmodified: seed: 1 -> 2" is "epochs: 1 -> 4; seed: 1 -> 2".
std::string Joined(std::string_view lines) {
  std::string text;
  for (std::size_t start = 0, end = 0; start < lines.size(); start = end + 1) {
    end = std::min(lines.find('\n', start), lines.size());
    std::string_view line = lines.substr(start, end - start);
    if (line.starts_with("modified: ")) line.remove_prefix(std::string_view("modified: ").size());
    text += StrCat(text.empty() ? "" : "; ", line);
  }
  return text;
}

}  // namespace

LossKind GetLossKind(const LossSpec& loss) {
  return std::visit(
      Overloaded{[](const SoftmaxCrossEntropySpec&) { return LossKind::kSoftmaxCrossEntropy; },
                 [](const MeanSquaredErrorSpec&) { return LossKind::kMeanSquaredError; },
                 [](const ContrastiveSpec&) { return LossKind::kContrastive; },
                 [](const OutputLossSpec&) { return LossKind::kOutput; }},
      loss);
}

std::string_view Name(LossKind loss) {
  switch (loss) {
    case LossKind::kSoftmaxCrossEntropy:
      return "softmax_cross_entropy";
    case LossKind::kMeanSquaredError:
      return "mean_squared_error";
    case LossKind::kContrastive:
      return "contrastive";
    case LossKind::kOutput:
      return "output";
  }
  return "";
}

Numerics GetNumerics(const JobSpec& job) {
  return {.precision = job.precision, .tf32 = job.tf32, .deterministic = job.deterministic};
}

MetricKind DescribeMetric(const MetricSpec& spec) {
  using enum Better;
  using enum MetricInput;
  return std::visit(
      Overloaded{
          [](const AccuracySpec&) { return MetricKind("accuracy", kLarger, kLabels); },
          [](const TopKSpec& top) { return MetricKind(StrCat("top_", top.k), kLarger, kLabels); },
          [](const F1MacroSpec&) { return MetricKind("f1_macro", kLarger, kLabels); },
          [](const F1MicroSpec&) { return MetricKind("f1_micro", kLarger, kLabels); },
          [](const MatthewsSpec&) { return MetricKind("matthews", kLarger, kLabels); },
          [](const PerplexitySpec&) { return MetricKind("perplexity", kSmaller, kLabels); },
          [](const MseSpec&) { return MetricKind("mse", kSmaller, kTargets); },
          [](const MaeSpec&) { return MetricKind("mae", kSmaller, kTargets); },
          [](const R2Spec&) { return MetricKind("r2", kLarger, kTargets); }},
      spec);
}

std::vector<MetricSpec> AllMetrics() {
  return []<std::size_t... kind>(std::index_sequence<kind...>) {
    return std::vector<MetricSpec>{std::variant_alternative_t<kind, MetricSpec>()...};
  }
  (std::make_index_sequence<std::variant_size_v<MetricSpec>>());
}

JobChanges CompareJobs(Job was, const Job& now) {
  if (was.data.class_name.empty()) was.data.class_name = now.data.class_name;
  if (was.data.column_name.empty()) was.data.column_name = now.data.column_name;
  const proto::Job before = ToProto(WithAbsolutePaths(was));
  const proto::Job after = ToProto(WithAbsolutePaths(now));
  std::string other_run;
  std::string reported;
  {  // the streams write in their destructors
    google::protobuf::io::StringOutputStream other_run_stream(&other_run);
    google::protobuf::io::StringOutputStream reported_stream(&reported);
    MessageDifferencer::StreamReporter other_run_reporter(&other_run_stream);
    MessageDifferencer::StreamReporter reported_reporter(&reported_stream);
    ReporterByMeaning by_meaning(&other_run_reporter, &reported_reporter);
    MessageDifferencer differencer;
    differencer.ReportDifferencesTo(&by_meaning);
    differencer.Compare(before, after);
  }
  return {.other_run = Joined(other_run), .reported = Joined(reported)};
}

}  // namespace gaccd
