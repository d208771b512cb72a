// What follows from the description of a message in proto/ (its types, its defaults and the options
// of proto/field.proto), by protobuf's reflection: checks, values from text, help, and the way
// between the message and a plain struct.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/result.h"

namespace google::protobuf {
class Descriptor;
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace gaccd {

// kConfig with "field.path: what is wrong, found value" for the first field that is missing or out
// of its range.
[[nodiscard]] Status CheckFields(const google::protobuf::Message& message);

// Sets the field at `path` ("model.layer[0].linear.out") to what `text` says, within its range.
// Errors are kUsage: an unknown path (with the nearest one), a list element that is not there, a
// field of another kind than the message has ("adamw" where it has "sgd"), a wrong value.
enum class ListElement : std::uint8_t { kMustExist, kAny };  // kAny: only the value is checked
[[nodiscard]] Status SetField(google::protobuf::Message& message, std::string_view path,
                              std::string_view text, ListElement element);

// A field and its path, "batch.micro"; "model.layer[0].name" in a list.
struct NamedField {
  std::string path;
  const google::protobuf::FieldDescriptor* field;
};
// All scalar fields and empty messages below `type`, in the order of their numbers.
[[nodiscard]] std::vector<NamedField> LeafFields(const google::protobuf::Descriptor& type);

// Whether the value that is set is one that the field takes.
[[nodiscard]] bool TakesValue(const google::protobuf::Message& message,
                              const google::protobuf::FieldDescriptor& field);
// "exact, floor, ceil or nearest", "at least 1"; empty where every value of the type is taken.
[[nodiscard]] std::string RangeText(const google::protobuf::FieldDescriptor& field);
// Empty when the field has none.
[[nodiscard]] std::string DefaultText(const google::protobuf::FieldDescriptor& field);
// Of an enumerator: SKIP_UPDATE is "skip-update" for people.
[[nodiscard]] std::string Spelled(std::string_view name);

// Lets one function say which member of a struct is which field, for both directions:
//   void Fields(MessageFields& io, SgdSpec& spec) { io("momentum", spec.momentum); ... }
// Reading: a field that is not set gives its default, an optional or a message stays as it was.
// Writing: every field is set, but for values that the field refuses (0 for "not given").
class MessageFields {
 public:
  enum class Direction : std::uint8_t { kRead, kWrite };
  MessageFields(google::protobuf::Message& message, Direction direction)
      : message_(&message), reads_(direction == Direction::kRead) {}

  void operator()(const char* name, bool& value);
  void operator()(const char* name, std::int64_t& value);
  void operator()(const char* name, std::uint64_t& value);
  void operator()(const char* name, double& value);
  void operator()(const char* name, std::string& value);
  void operator()(const char* name, std::vector<std::int64_t>& values);

  template <typename T>
  void operator()(const char* name, T& value) {
    if constexpr (std::is_enum_v<T>) {  // with the numbers of proto/
      int number = static_cast<int>(value);
      Enum(name, number);
      value = static_cast<T>(number);
    } else if (!reads_ || Has(name)) {
      Group(Child(name), value);
    }
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    if (!(reads_ ? Has(name) : value.has_value())) return;
    if (reads_) value.emplace();
    (*this)(name, *value);
  }
  template <typename T>
  void operator()(const char* name, std::vector<T>& values) {
    if (reads_) values.resize(Size(name));
    for (std::size_t i = 0; i < values.size(); ++i) Group(Element(name, i), values[i]);
  }
  // `names` are those of the alternatives; "" is the one that stands for none of the fields.
  template <typename... T>
  void OneOf(std::variant<T...>& value, std::initializer_list<const char*> names) {
    std::size_t i = 0;
    for (const char* name : names) {
      if (*name != '\0' && (reads_ ? Has(name) : i == value.index())) {
        if (reads_) value = Alternative<T...>(i);
        std::visit([&](auto& one) { Group(Child(name), one); }, value);
      }
      ++i;
    }
  }
  // Which one of the messages `names` of the message `name` is there, where they have no fields.
  template <typename E>
  void Kind(const char* name, E& value, std::initializer_list<const char*> names) {
    MessageFields kind = Child(name);
    int i = 0;
    for (const char* one : names) {
      if (reads_ && kind.Has(one)) value = static_cast<E>(i);
      if (!reads_ && i == static_cast<int>(value)) kind.Child(one);
      ++i;
    }
  }
  // Whether the message gives the field; writing leaves `given` as it is.
  void Given(const char* name, bool& given) {
    if (reads_) given = Has(name);
  }

 private:
  [[nodiscard]] bool Has(const char* name) const;
  [[nodiscard]] std::size_t Size(const char* name) const;
  MessageFields Child(const char* name);
  MessageFields Element(const char* name, std::size_t index);  // appended when writing
  void Enum(const char* name, int& number);

  template <typename T>
  static void Group(MessageFields io, T& value) {
    if constexpr (!std::is_empty_v<T>) Fields(io, value);
  }
  template <typename... T>
  static std::variant<T...> Alternative(std::size_t index) {
    std::variant<T...> made;
    std::size_t i = 0;
    ((i++ == index ? static_cast<void>(made = T{}) : static_cast<void>(0)), ...);
    return made;
  }

  google::protobuf::Message* message_;
  bool reads_;
};

}  // namespace gaccd
