# shoal_layer(NAME engine DEPS base memory policy [LIBS absl::status] [PURE] [GUARDED])
#
# One folder of src/ = one static library, one unit-test binary (every *_test.cc in it) and one link test.
# The link test puts the whole library into a program together with its declared DEPS alone, so reaching for a
# folder that is not declared is a link error. A folder below another is a layer as well: text/jinja, whose targets are
# text_jinja, text_jinja_test and text_jinja_link_test. PURE adds: the library may not even refer to a clock, a thread,
# a socket or a file (checked on its undefined symbols by tools/purity.py). GUARDED: its tests run once more on a device whose
# memory only the backend can touch (device/cpu_device.h).
# Folders below this one that hold their own CMakeLists.txt are optional sibling libraries and not part of it.
function(shoal_layer)
  cmake_parse_arguments(ARG "PURE;GUARDED" "NAME" "DEPS;LIBS;TEST_DEPS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${ARG_NAME})
  set(folder ${ARG_NAME})
  string(REPLACE "/" "_" ARG_NAME "${folder}")
  string(REPLACE "/" "_" ARG_DEPS "${ARG_DEPS}")
  string(REPLACE "/" "_" ARG_TEST_DEPS "${ARG_TEST_DEPS}")
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${dir}/*.cc)
  file(GLOB siblings CONFIGURE_DEPENDS ${dir}/*/CMakeLists.txt)
  foreach(sibling ${siblings})
    get_filename_component(sibling_dir ${sibling} DIRECTORY)
    list(FILTER all EXCLUDE REGEX "^${sibling_dir}/")
  endforeach()
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz)\\.cc$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")

  add_library(${ARG_NAME} STATIC ${sources})
  target_include_directories(${ARG_NAME} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS} ${ARG_LIBS})
  if(NOT (ARG_NAME STREQUAL "kernels" OR folder IN_LIST SHOAL_SANITIZE_LAYERS))  # Highway reads files of kernels several times
    shoal_precompile(${ARG_NAME} layers)
  endif()

  if(SHOAL_TESTS)
    file(WRITE ${CMAKE_BINARY_DIR}/link_test_main.cc "int main() { return 0; }\n")
    add_executable(${ARG_NAME}_link_test ${CMAKE_BINARY_DIR}/link_test_main.cc)
    target_link_libraries(${ARG_NAME}_link_test PRIVATE
      -Wl,--whole-archive $<TARGET_FILE:${ARG_NAME}> -Wl,--no-whole-archive ${ARG_DEPS} ${ARG_LIBS})
    add_dependencies(${ARG_NAME}_link_test ${ARG_NAME})
    add_test(NAME ${ARG_NAME}_link COMMAND ${ARG_NAME}_link_test)
    if(ARG_PURE)
      add_test(NAME ${ARG_NAME}_purity
        COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/purity.py $<TARGET_FILE:${ARG_NAME}>)
    endif()
    if(tests)
      add_executable(${ARG_NAME}_test ${tests})
      target_link_libraries(${ARG_NAME}_test PRIVATE ${ARG_NAME} ${ARG_TEST_DEPS} GTest::gmock GTest::gtest_main)
      target_compile_definitions(${ARG_NAME}_test PRIVATE
        SHOAL_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SHOAL_SHARED_DIR="${CMAKE_SOURCE_DIR}/../shared")
      if(NOT folder IN_LIST SHOAL_SANITIZE_LAYERS)
        shoal_test_options(${ARG_NAME}_test)
      endif()
      gtest_discover_tests(${ARG_NAME}_test DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT 900)
      if(ARG_GUARDED)
        add_test(NAME ${ARG_NAME}_guarded COMMAND ${ARG_NAME}_test)
        set_tests_properties(${ARG_NAME}_guarded PROPERTIES ENVIRONMENT SHOAL_TEST_DEVICE=guarded TIMEOUT 900)
      endif()
    endif()
  endif()
  if(folder IN_LIST SHOAL_SANITIZE_LAYERS)
    foreach(target ${ARG_NAME} ${ARG_NAME}_test)
      if(TARGET ${target})
        target_compile_options(${target} PRIVATE ${SANITIZE_OPTIONS} -g1)
      endif()
    endforeach()
  endif()
  if(SHOAL_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzz_name ${fuzzer} NAME_WE)
      add_executable(${fuzz_name} ${fuzzer})
      target_link_libraries(${fuzz_name} PRIVATE ${ARG_NAME} -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()

# shoal_protobuf(wire messages.proto): src/wire/messages.proto becomes wire/messages.pb.{h,cc} of the library.
function(shoal_protobuf layer proto)
  get_filename_component(stem ${proto} NAME_WE)
  set(out ${CMAKE_BINARY_DIR}/generated)
  set(products ${out}/${layer}/${stem}.pb.cc ${out}/${layer}/${stem}.pb.h)
  file(MAKE_DIRECTORY ${out}/${layer})
  add_custom_command(OUTPUT ${products}
    COMMAND protobuf::protoc --cpp_out=${out} -I ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${layer}/${proto}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/${proto})
  target_sources(${layer} PRIVATE ${products})
  target_include_directories(${layer} SYSTEM PUBLIC ${out})
endfunction()

# shoal_grpc(membership_etcd rpc.proto): the same for its services, beside shoal_protobuf().
function(shoal_grpc layer proto)
  get_filename_component(stem ${proto} NAME_WE)
  set(out ${CMAKE_BINARY_DIR}/generated)
  set(products ${out}/${layer}/${stem}.grpc.pb.cc ${out}/${layer}/${stem}.grpc.pb.h)
  add_custom_command(OUTPUT ${products}
    COMMAND protobuf::protoc --grpc_out=${out} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} -I ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${layer}/${proto}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/${proto})
  target_sources(${layer} PRIVATE ${products})
endfunction()
