// Errors of operation are values: absl::Status and absl::StatusOr, under the project's names.
//
// An error message names the thing, the cause and what to do, in one line, e.g.
//   "model.safetensors: tensor 'x' ends at byte 900 of a data part of 512 bytes; the file is truncated, fetch it again"
// Nothing a client or a file sends may reach a CHECK (base/check.h); it ends in one of these.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace shoal {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

template <typename... Args>
Status invalid_argument(const Args&... args) { return absl::InvalidArgumentError(absl::StrCat(args...)); }
template <typename... Args>
Status not_found(const Args&... args) { return absl::NotFoundError(absl::StrCat(args...)); }
template <typename... Args>
Status resource_exhausted(const Args&... args) { return absl::ResourceExhaustedError(absl::StrCat(args...)); }
template <typename... Args>
Status unimplemented(const Args&... args) { return absl::UnimplementedError(absl::StrCat(args...)); }
template <typename... Args>
Status unavailable(const Args&... args) { return absl::UnavailableError(absl::StrCat(args...)); }
template <typename... Args>
Status data_loss(const Args&... args) { return absl::DataLossError(absl::StrCat(args...)); }

// Puts `where` in front of the message of an error, keeping its code: the caller knows the file, the callee the fault.
Status annotate(const Status& status, std::string_view where);

}  // namespace shoal

#define SHOAL_CONCAT_INNER(a, b) a##b
#define SHOAL_CONCAT(a, b) SHOAL_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(expr): returns the Status of `expr` from this function unless it is OK.
#define RETURN_IF_ERROR(expr)                       \
  do {                                              \
    ::shoal::Status shoal_status_ = (expr);         \
    if (!shoal_status_.ok()) return shoal_status_;  \
  } while (false)

// ASSIGN_OR_RETURN(auto value, expr): unwraps a StatusOr or returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(SHOAL_CONCAT(shoal_result_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = std::move(result).value()
