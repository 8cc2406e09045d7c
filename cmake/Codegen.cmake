# Runs tools/codegen.py. `--list` names its outputs; it writes a file only when the text changed, and
# Ninja's restat then skips what depends on an unchanged one. Needs TABLE_SOURCES of Tables.cmake, sets
# CODEGEN_SOURCES.

set(codegen_py "${CMAKE_SOURCE_DIR}/tools/codegen.py")
file(GLOB codegen_scripts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/codegen/*.py")
list(APPEND codegen_scripts "${codegen_py}" "${CMAKE_SOURCE_DIR}/tools/rows/model.py")
# Of the rows it needs the names alone. These stand in the generated headers, which stay as they are
# when an expression changes.
set(codegen_tables "${CMAKE_SOURCE_DIR}/csrc/ops/ops.yaml" ${TABLE_SOURCES})
list(FILTER codegen_tables EXCLUDE REGEX "\\.cpp$")

# The scripts decide how many files there are; the tables only what is in them.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${codegen_scripts})
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${codegen_py}" --out "${GENERATED_DIR}" --list
  OUTPUT_VARIABLE codegen_outputs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" codegen_outputs "${codegen_outputs}")
add_custom_command(
  OUTPUT ${codegen_outputs}
  COMMAND "${Python_EXECUTABLE}" "${codegen_py}" --out "${GENERATED_DIR}"
  DEPENDS ${codegen_scripts} ${codegen_tables}
  COMMENT "Generating op registrations"
  VERBATIM)
set(CODEGEN_SOURCES ${codegen_outputs})
list(FILTER CODEGEN_SOURCES INCLUDE REGEX "\\.(cpp|h)$")
