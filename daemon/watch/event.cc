#include "daemon/watch/event.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace gaccd {
namespace {

using Json = nlohmann::json;

// Straight into the fields of an event: a tree of JSON would cost as much again.
class Fields : public Json::json_sax_t {
 public:
  explicit Fields(Event* event) : event_(event) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(std::int64_t value) override { return Add(value); }
  bool number_unsigned(std::uint64_t value) override {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (value <= kMost) return Add(static_cast<std::int64_t>(value));
    return Add(static_cast<double>(value));
  }
  bool number_float(double value, const std::string& /*text*/) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) override { return false; }
  bool key(std::string& name) override {
    event_->fields.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return depth_++ == 0; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return false; }
  bool end_array() override { return false; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  bool Add(EventValue value) {
    if (depth_ == 0) return false;  // no object at all
    event_->fields.back().second = std::move(value);
    return true;
  }

  Event* const event_;
  int depth_ = 0;
};

}  // namespace

const EventValue* Event::Find(std::string_view key) const {
  const auto found = std::ranges::find(
      fields, key, [](const auto& field) -> std::string_view { return field.first; });
  return found == fields.end() ? nullptr : &found->second;
}

std::optional<double> Event::Number(std::string_view key) const {
  const EventValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* whole = std::get_if<std::int64_t>(value)) return static_cast<double>(*whole);
  return std::nullopt;
}

std::optional<std::int64_t> Event::Whole(std::string_view key) const {
  const EventValue* value = Find(key);
  const auto* whole = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  return whole == nullptr ? std::nullopt : std::optional(*whole);
}

std::string_view Event::Text(std::string_view key) const {
  const EventValue* value = Find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

bool Event::Is(std::string_view key) const {
  const EventValue* value = Find(key);
  const auto* flag = value == nullptr ? nullptr : std::get_if<bool>(value);
  return flag != nullptr && *flag;
}

bool ParseEvent(std::string_view line, Event* event) {
  event->fields.clear();
  Fields fields(event);
  if (!Json::sax_parse(line.begin(), line.end(), &fields)) return false;
  const auto at = ParseTimestamp(event->Text("ts"));
  if (!at || event->Text("ev").empty()) return false;
  event->at = *at;
  event->name = event->Text("ev");
  event->line = line;
  return true;
}

}  // namespace gaccd
