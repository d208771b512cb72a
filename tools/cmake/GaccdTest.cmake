include(GoogleTest)

# gaccd_test(NAME LABEL TIMEOUT SOURCES file... [LIBS target...])
# One GoogleTest binary, one CTest entry. LABEL is unit, ranks, numerics, cluster or faults.
function(gaccd_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT arg_LABEL OR NOT arg_TIMEOUT OR NOT arg_SOURCES)
    message(FATAL_ERROR "gaccd_test(${name}): LABEL, TIMEOUT and SOURCES are needed")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gaccd_options ${arg_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
  if("thread" IN_LIST GACCD_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/cmake/tsan.supp")
  endif()
endfunction()
