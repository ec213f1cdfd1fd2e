# Headers of libraries that nearly every file takes in, read once per group of files instead of once per file. What is built
# with sanitizers or for fuzzing, or with SHOAL_PCH=OFF, compiles from what it includes itself: that finds an #include that
# was forgotten.
option(SHOAL_PCH "Read the headers of libraries once per group of files" ON)
if(SHOAL_FUZZ OR (SHOAL_SANITIZE AND NOT SHOAL_SANITIZE_LAYERS))
  set(SHOAL_PCH OFF)
endif()

set(PRECOMPILED <algorithm> <atomic> <chrono> <cmath> <cstdint> <deque> <filesystem> <functional> <map> <memory> <mutex>
  <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/numbers.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <nlohmann/json.hpp>)

# shoal_precompile(TARGET GROUP [HEADER...]): the first target of a group makes its headers, the others take them from it.
# All targets of a group must compile with the same options.
function(shoal_precompile target group)
  if(NOT SHOAL_PCH)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY SHOAL_PCH_OF_${group})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${PRECOMPILED} ${ARGN})
    set_property(GLOBAL PROPERTY SHOAL_PCH_OF_${group} ${target})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # ccache wants the first; from a precompiled header GCC 12 warns of its own std::string, falsely.
    target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-stringop-overflow -Wno-array-bounds)
  endif()
endfunction()

# shoal_test_options(TARGET): in Release, a test compiles with -O1 in two thirds of the time.
function(shoal_test_options target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  shoal_precompile(${target} tests <gmock/gmock.h> <gtest/gtest.h>)
endfunction()
