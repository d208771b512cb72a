// Merger: merges the records of several growing sources, the earliest first.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace gaccd {

// A Source has
//   bool Advance();                // to its next record; false at the end so far
//   Record& record();              // REQUIRES: Advance() returned true
//   bool IsBefore(const Source&);  // order of their records
// Not thread-safe.
template <typename Source>
class Merger {
 public:
  void Add(std::unique_ptr<Source> source) {
    ended_.push_back(source.get());
    sources_.push_back(std::move(source));
  }
  // Continues ended sources and starts added ones.
  void Refresh() {
    for (Source* const source : std::exchange(ended_, {})) Push(source);
  }
  // The earliest record; null at the end so far, until Refresh().
  [[nodiscard]] auto* First() const { return heap_.empty() ? nullptr : &heap_.front()->record(); }
  // REQUIRES: First() is not null.
  [[nodiscard]] auto Pop() {
    std::ranges::pop_heap(heap_, IsLater);
    Source* const source = heap_.back();
    heap_.pop_back();
    auto record = std::move(source->record());
    Push(source);
    return record;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Source>>& sources() const { return sources_; }

 private:
  static bool IsLater(const Source* a, const Source* b) { return b->IsBefore(*a); }
  void Push(Source* source) {
    if (!source->Advance()) return ended_.push_back(source);
    heap_.push_back(source);
    std::ranges::push_heap(heap_, IsLater);
  }

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<Source*> heap_;   // sources with a record, the earliest first
  std::vector<Source*> ended_;  // the others
};

}  // namespace gaccd
