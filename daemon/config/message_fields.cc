// The part of fields.h that stands between messages and structs.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <stdexcept>
#include <vector>

#include "daemon/config/fields.h"

namespace gaccd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A name is written once, beside its struct: a wrong one ends the first test that reads a job.
const FieldDescriptor* Find(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) throw std::logic_error(std::string("no field ") + name);
  return field;
}

// `get` and `set` are the accessors of Reflection for the type of `value`.
template <typename T, typename Get, typename Set>
void Exchange(Message& message, bool reads, const char* name, T& value, Get get, Set set) {
  const FieldDescriptor* field = Find(message, name);
  const Reflection& reflection = *message.GetReflection();
  if (reads) {
    value = (reflection.*get)(message, field);
    return;
  }
  (reflection.*set)(&message, field, value);
  if (!TakesValue(message, *field)) reflection.ClearField(&message, field);
}

}  // namespace

void MessageFields::operator()(const char* name, bool& value) {
  Exchange(*message_, reads_, name, value, &Reflection::GetBool, &Reflection::SetBool);
}
void MessageFields::operator()(const char* name, std::int64_t& value) {
  Exchange(*message_, reads_, name, value, &Reflection::GetInt64, &Reflection::SetInt64);
}
void MessageFields::operator()(const char* name, std::uint64_t& value) {
  Exchange(*message_, reads_, name, value, &Reflection::GetUInt64, &Reflection::SetUInt64);
}
void MessageFields::operator()(const char* name, double& value) {
  Exchange(*message_, reads_, name, value, &Reflection::GetDouble, &Reflection::SetDouble);
}
void MessageFields::operator()(const char* name, std::string& value) {
  Exchange(*message_, reads_, name, value, &Reflection::GetString, &Reflection::SetString);
}
void MessageFields::operator()(const char* name, std::vector<std::int64_t>& values) {
  const FieldDescriptor* field = Find(*message_, name);
  const Reflection& reflection = *message_->GetReflection();
  if (!reads_) {
    for (const std::int64_t value : values) reflection.AddInt64(message_, field, value);
    return;
  }
  values.resize(Size(name));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = reflection.GetRepeatedInt64(*message_, field, static_cast<int>(i));
  }
}
void MessageFields::Enum(const char* name, int& number) {
  Exchange(*message_, reads_, name, number, &Reflection::GetEnumValue, &Reflection::SetEnumValue);
}

bool MessageFields::Has(const char* name) const {
  return message_->GetReflection()->HasField(*message_, Find(*message_, name));
}

std::size_t MessageFields::Size(const char* name) const {
  return static_cast<std::size_t>(
      message_->GetReflection()->FieldSize(*message_, Find(*message_, name)));
}

MessageFields MessageFields::Child(const char* name) {
  const FieldDescriptor* field = Find(*message_, name);
  return {*message_->GetReflection()->MutableMessage(message_, field),
          reads_ ? Direction::kRead : Direction::kWrite};
}

MessageFields MessageFields::Element(const char* name, std::size_t index) {
  const FieldDescriptor* field = Find(*message_, name);
  const Reflection& reflection = *message_->GetReflection();
  if (!reads_) return {*reflection.AddMessage(message_, field), Direction::kWrite};
  return {*reflection.MutableRepeatedMessage(message_, field, static_cast<int>(index)),
          Direction::kRead};
}

}  // namespace gaccd
