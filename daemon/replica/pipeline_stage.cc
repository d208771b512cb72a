#include "daemon/replica/pipeline_stage.h"

#include <algorithm>
#include <span>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

Result<PipelineStage> DivideParameters(const FlatLayout& layout, const StageUsers& users,
                                       std::vector<std::int64_t> blocks, std::size_t stage) {
  const std::span<const FlatEntry> entries = layout.entries();
  PipelineStage made{.stage = stage, .blocks = std::move(blocks)};
  std::vector<std::vector<std::size_t>> stages(entries.size());
  for (std::size_t s = 0; s < users.size(); ++s) {
    for (const std::size_t parameter : users[s]) stages[parameter].push_back(s);
  }
  made.parts.resize(users.size());
  std::size_t owner = 0;
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const FlatEntry& entry = entries[p];
    const std::size_t first = stages[p].empty() ? owner : stages[p].front();
    // A constant of an exported graph is stored last, whichever stages read it. Any stage can own
    // what is frozen: it has no state and no gradient.
    if (first < owner && !entry.frozen) {
      return Status(ErrorKind::kConfig,
                    StrCat("pipeline: expected the parameters of the stages one after the other; '",
                           entry.name, "' of stage ", first, " (from 0) follows those of stage ",
                           owner, ": choose other blocks"));
    }
    owner = std::max(owner, first);
    ShardPart& part = made.parts[owner];
    if (part.elements == 0) part.first = entry.offset;
    part.elements = entry.offset + entry.padded_elements() - part.first;
    if (!entry.frozen) part.state_elements += entry.padded_elements();
    made.uses.push_back(std::ranges::count(stages[p], stage) > 0);
    if (stages[p].size() > 1 && !entry.frozen) made.shared.push_back({p, stages[p]});
  }
  for (std::size_t s = 1; s < made.parts.size(); ++s) {
    const ShardPart& before = made.parts[s - 1];
    made.parts[s].state_first = before.state_first + before.state_elements;
    made.parts[s].first = before.first + before.elements;
  }
  return made;
}

FlatLayout StagePlaces(const FlatLayout& layout, const PipelineStage& stage) {
  const std::span<const FlatEntry> entries = layout.entries();
  const ShardPart& own = stage.own();
  std::vector<std::int64_t> offsets(entries.size());
  std::vector<std::size_t> elsewhere;
  std::int64_t size = own.elements;
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const std::int64_t place = entries[p].offset - own.first;
    if (place >= 0 && place < own.elements) {
      offsets[p] = place;
    } else if (stage.uses[p]) {
      offsets[p] = size;
      size += entries[p].padded_elements();
    } else {
      elsewhere.push_back(p);
    }
  }
  for (const std::size_t p : elsewhere) offsets[p] = size;
  return layout.PlacedAt(offsets, size);
}

}  // namespace gaccd
