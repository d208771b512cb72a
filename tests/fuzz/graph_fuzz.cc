// Any bytes as graph.txtpb: what is accepted has a shape for every value, with any number of
// samples.

#include "daemon/models/graph_network.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

// The error of a recording, or the number of rows of a sample.
Result<std::int64_t> CountRows(const Network& network, std::int64_t samples) {
  Graph graph;
  const SampleSpec sample = network.ExampleSample();
  nn::Recorder recorder(graph, network.parameters(), sample,
                        {.samples = samples, .training = true});
  const ValueId prediction = network.Record(recorder);
  GACCD_RETURN_IF_ERROR(recorder.status());
  const Shape& shape = recorder.shape(prediction);
  FuzzCheck(shape.size() == 2, "a prediction is a matrix");
  FuzzCheck(shape[0] % samples == 0, "every sample has the same number of rows");
  return shape[0] / samples;
}

void CheckRefusal(const Status& status) {
  FuzzCheck(status.kind() == ErrorKind::kConfig, "the kind of a refusal is config");
  FuzzCheck(!status.message().empty(), "a refusal says why");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzGraph(const std::uint8_t* data, std::size_t size) {
  auto graph = ParseGraph({reinterpret_cast<const char*>(data), size}, "graph.txtpb");
  if (!graph.ok()) return CheckRefusal(graph.status()), 0;
  const auto network = GraphNetwork::Make(*std::move(graph), NormStatistics{}, "graph.txtpb");
  if (!network.ok()) return CheckRefusal(network.status()), 0;
  const auto one = CountRows(**network, 1);
  const auto five = CountRows(**network, 5);
  for (const auto& rows : {one, five}) {
    if (!rows.ok()) CheckRefusal(rows.status());
  }
  if (one.ok() && five.ok()) FuzzCheck(*one == *five, "the rows of a sample are always as many");
  return 0;
}
