# Where an installed Python package lies, without importing it (importing torch takes seconds).

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

function(torch_webgpu_python_package_dir package out_var)
  execute_process(
    COMMAND
      "${Python_EXECUTABLE}" -c
      "import importlib.util as u, os; s = u.find_spec('${package}'); print(os.path.dirname(s.origin) if s else '', end='')"
    OUTPUT_VARIABLE dir COMMAND_ERROR_IS_FATAL ANY)
  file(TO_CMAKE_PATH "${dir}" dir)
  set(${out_var} "${dir}" PARENT_SCOPE)
endfunction()
