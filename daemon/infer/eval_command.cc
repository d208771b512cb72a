#include <string>

#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/eval/evaluator.h"
#include "daemon/infer/commands.h"
#include "daemon/infer/trained_model.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/train/consistency.h"

namespace gaccd {
namespace {

std::string ResultText(const Session& session, const TrainedModel& trained,
                       const EvalRecord& record) {
  const auto bad = trained.data->bad_records();
  return StrCat(session.device.text, "\n", trained.Report(),
                bad.empty()
                    ? ""
                    : StrCat("damaged records: ", bad.size(), " are left out, ", record.samples,
                             " remain; the first: ", Printable(bad.front().why), "\n"),
                "eval: ", EvalText(record), "\n");
}

std::string ResultJson(const Session& session, const TrainedModel& trained,
                       const EvalRecord& record) {
  JsonObject out;
  out("job", trained.job.name);
  out("weights", trained.weights.from);
  out.NotZero("step", trained.step);
  out("device", Name(session.device.device));
  out("world", session.comm.size());
  out("samples", record.samples);
  out.NotZero("left_out", std::ssize(trained.data->bad_records()));
  out("divisor", record.divisor);
  out("unit", record.unit);
  out("loss", record.loss);
  for (const MetricValue& metric : record.metrics) out(metric.name, metric.value);
  out("dur_s", record.dur_s);
  return out.Finish() + "\n";
}

RankStatus RunEvaluation(const Flags& flags, Session& session, TrainedModel& trained) {
  const MakeModel make = [](const ModelSpec& model, const SampleSpec& sample) {
    return Model::Make(model, sample);
  };
  if (RankStatus opened = OpenTrainedModel(flags, session, make, &trained); !opened.status.ok()) {
    return opened;
  }
  Communicator& comm = session.comm;
  Evaluator evaluator(comm, *trained.data, trained.job.batch.micro, trained.model->divisor_unit(),
                      SelectMetrics(trained.job, trained.data->spec()));
  evaluator.GroupByLength(trained.model->sample().cuts);
  evaluator.SetAnySplit(trained.job.batch.bits == Bits::kAnySplit);
  const auto record = evaluator.Evaluate(*trained.engine, {.step = trained.step}, nullptr,
                                         {.peers = session.peers.get()});
  if (!record.ok()) return {record.status(), !PeersAreLost(session)};
  if (Status same = CheckUnchangedData(comm, *trained.data, nullptr); !same.ok()) return {same};
  if (comm.rank() != 0) return {};
  const bool json = flags.format == OutputFormat::kJson;
  return {PrintOut(json ? ResultJson(session, trained, **record)
                        : ResultText(session, trained, **record)),
          false};
}

}  // namespace

VerbOutcome RunEval(const Flags& flags, const ErrorPrinter& print) {
  return RunOnRanks(flags, print, [&](Session& session, TrainedModel& trained) {
    return RunEvaluation(flags, session, trained);
  });
}

}  // namespace gaccd
