# Runs tools/tables.py on the op tables. It writes a file only when the text changed, and Ninja's restat
# then skips what depends on an unchanged one: a change of an expression compiles one small file.
# Sets TABLE_SOURCES.

set(tables_py "${CMAKE_SOURCE_DIR}/tools/tables.py")
file(GLOB tables_scripts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/rows/*.py"
     "${CMAKE_SOURCE_DIR}/tools/rows/*.j2")
list(APPEND tables_scripts "${tables_py}" "${CMAKE_SOURCE_DIR}/tools/contract/emit.py"
     "${CMAKE_SOURCE_DIR}/tools/contract/parse.py")
file(GLOB tables_rows CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/ops/*/rows.yaml")
# The library declares the accumulators of reductions, and goes into library.json.
file(GLOB tables_library CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/wgsl/lib/*.wgsl")
# The scripts decide which tables there are.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables_scripts})
set(tables_args --csrc "${CMAKE_SOURCE_DIR}/csrc" --out "${GENERATED_DIR}")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${tables_py}" ${tables_args} --list
  OUTPUT_VARIABLE table_outputs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" table_outputs "${table_outputs}")
add_custom_command(
  OUTPUT ${table_outputs}
  COMMAND "${Python_EXECUTABLE}" "${tables_py}" ${tables_args}
  DEPENDS ${tables_scripts} ${tables_rows} ${tables_library}
  COMMENT "Generating op tables"
  VERBATIM)
set(TABLE_SOURCES ${table_outputs})
list(FILTER TABLE_SOURCES INCLUDE REGEX "\\.(cpp|h)$")
