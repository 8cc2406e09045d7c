# Turns the .wgsl files into one small C++ file: a change of a shader compiles that file alone.
# Sets WGSL_SOURCES_CPP.

set(WGSL_SOURCES_CPP "${GENERATED_DIR}/wgsl_sources.cpp")
file(GLOB_RECURSE wgsl_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/wgsl/*.wgsl")
# Ninja does not notice an input that is gone; it notices that this list changed.
set(wgsl_list "${CMAKE_BINARY_DIR}/wgsl_files.txt")
file(CONFIGURE OUTPUT "${wgsl_list}" CONTENT "${wgsl_files}" @ONLY)
add_custom_command(
  OUTPUT "${WGSL_SOURCES_CPP}"
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/tools/embed_wgsl.py" --root
          "${CMAKE_SOURCE_DIR}/csrc/wgsl" --out "${WGSL_SOURCES_CPP}"
  DEPENDS "${CMAKE_SOURCE_DIR}/tools/embed_wgsl.py" "${wgsl_list}" ${wgsl_files}
  COMMENT "Embedding WGSL"
  VERBATIM)
