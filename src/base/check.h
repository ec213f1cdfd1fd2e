// CHECK guards our own invariants and stays on in release builds: a broken invariant ends the process with file, line
// and values before it can deliver a wrong token. Never CHECK what a client, a file or a peer sends: that is a Status.
#pragma once

#include <sstream>
#include <string>

namespace shoal {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);

template <typename A, typename B>
std::string check_values(const A& a, const B& b) {
  std::ostringstream out;
  out << a << " vs " << b;
  return out.str();
}

}  // namespace shoal

#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition)) ::shoal::check_failed(__FILE__, __LINE__, #condition, {});  \
  } while (false)

#define CHECK_OP(a, op, b)                                                                                            \
  do {                                                                                                                \
    const auto check_a_ = (a);                                                                                       \
    const auto check_b_ = (b);                                                                                       \
    if (!(check_a_ op check_b_))                                                                                      \
      ::shoal::check_failed(__FILE__, __LINE__, #a " " #op " " #b, ::shoal::check_values(check_a_, check_b_));        \
  } while (false)

#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)
