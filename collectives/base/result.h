// Status and Result<T>: error reporting of all functions of gaccd.
//
// An error has a message with the expected and the actual value, and a kind. The kind is the exit
// code of the process (sysexits.h plus 93, "do not requeue"), but only main exits with it; main
// also adds rank and host. Neither class is thread-safe; both are cheap to move. A success
// allocates no memory.
#pragma once

#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace gaccd {

// The numbers are the exit codes.
enum class ErrorKind : int {
  kUsage = 64,         // unknown flag, bad value
  kData = 65,          // invalid content of a data set, weights file or checkpoint
  kUnavailable = 69,   // a peer, MPI or the network is lost
  kInternal = 70,      // a broken invariant: a bug in gaccd
  kOs = 71,            // a request to the operating system or SLURM failed
  kIo = 74,            // a file cannot be read or written
  kTempFail = 75,      // stopped by a signal or a time limit: to be requeued
  kConfig = 78,        // the job or the plan cannot work; flags disagree with the environment
  kNoRequeue = 93,     // another attempt would fail again or is not wanted: diverged, STOP
  kInterrupted = 130,  // SIGINT twice: exits at once
};

// "usage", "data", ... for logs.
[[nodiscard]] std::string_view ErrorKindName(ErrorKind kind);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(ErrorKind kind, std::string message);
  Status(const Status& other) : error_(other.ok() ? nullptr : Copy(*other.error_)) {}
  Status(Status&& other) noexcept : error_(std::exchange(other.error_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(error_, other.error_);
    return *this;
  }
  ~Status() {
    if (!ok()) Delete(error_);
  }

  static Status Ok() { return {}; }
  // kConfig, for an allocation that failed: see NoMemory() (memory.h).
  static Status LacksMemory(std::string message);

  [[nodiscard]] bool ok() const { return error_ == nullptr; }
  // REQUIRES: !ok().
  [[nodiscard]] ErrorKind kind() const { return error_->kind; }
  [[nodiscard]] const std::string& message() const { return error_->message; }

  // Whether LacksMemory() made this error: on another machine the same may succeed.
  [[nodiscard]] bool lacks_memory() const { return !ok() && error_->lacks_memory; }

  // The same error with the prefix "`what`: "; a success is returned unchanged.
  [[nodiscard]] Status WithContext(std::string_view what) const;

 private:
  struct Error {
    ErrorKind kind;
    std::string message;
    bool lacks_memory = false;
  };
  explicit Status(Error error);
  static const Error* Copy(const Error& error);
  static void Delete(const Error* error);

  const Error* error_ = nullptr;  // owned
};

[[nodiscard]] Status NoValue();  // the error of a Result made from a successful Status
// Writes the error to stderr and aborts: a Result was read without a value.
[[noreturn]] void AbortWithoutValue(const Status& status);

// A value, or the Status of the failure. A union instead of a std::optional: every file
// instantiates dozens of these, and std::optional makes the build 4 % slower.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // A successful Status has no value and becomes kInternal.
  Result(Status status)  // NOLINT(google-explicit-constructor)
      : status_(status.ok() ? NoValue() : std::move(status)) {}
  Result(const Result& other) : status_(other.status_) {
    if (ok()) ::new (static_cast<void*>(&value_)) T(other.value_);
  }
  // `other` keeps its status; its value is moved from.
  Result(Result&& other) noexcept : status_(other.status_) {
    if (ok()) ::new (static_cast<void*>(&value_)) T(std::move(other.value_));
  }
  Result& operator=(Result other) noexcept {
    this->~Result();
    return *::new (static_cast<void*>(this)) Result(std::move(other));
  }
  ~Result() {
    if (ok()) value_.~T();
  }

  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& status() const { return status_; }

  // REQUIRES: ok(). Aborts otherwise, with the error.
  [[nodiscard]] T& value() & { return Checked(); }
  [[nodiscard]] const T& value() const& { return Checked(); }
  [[nodiscard]] T&& value() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &Checked(); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return Checked(); }
  T&& operator*() && { return std::move(Checked()); }

 private:
  T& Checked() {
    if (!ok()) AbortWithoutValue(status_);
    return value_;
  }
  const T& Checked() const { return const_cast<Result*>(this)->Checked(); }

  Status status_;
  union {
    T value_;  // if ok()
  };
};

}  // namespace gaccd

// Return early on failure: macros, as a function cannot do this.
#define GACCD_CONCAT_INNER(a, b) a##b
#define GACCD_CONCAT(a, b) GACCD_CONCAT_INNER(a, b)
#define GACCD_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                     \
    if (::gaccd::Status gaccd_status_ = (expr); !gaccd_status_.ok()) return gaccd_status_; \
  } while (false)
#define GACCD_ASSIGN_OR_RETURN(target, expr) \
  GACCD_ASSIGN_OR_RETURN_INNER(GACCD_CONCAT(gaccd_result_, __LINE__), target, expr)
#define GACCD_ASSIGN_OR_RETURN_INNER(result, target, expr) \
  auto result = (expr);                                    \
  if (!result.ok()) return result.status();                \
  target = std::move(result).value()
