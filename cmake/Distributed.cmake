# Whether the build's PyTorch has torch.distributed, which is a choice of whoever built it. Needs
# TORCH_DIR and TORCH_VERSION, sets TORCH_WEBGPU_DISTRIBUTED.
#
# -DTORCH_WEBGPU_DISTRIBUTED=ON or OFF answers in its place, for a build whose Python cannot run torch.

set(_distributed_asked "${TORCH_DIR} ${TORCH_VERSION}")
if(NOT DEFINED CACHE{TORCH_WEBGPU_DISTRIBUTED}
   OR (DEFINED TORCH_WEBGPU_DISTRIBUTED_ASKED
       AND NOT TORCH_WEBGPU_DISTRIBUTED_ASKED STREQUAL _distributed_asked))
  # Importing torch takes seconds, so the answer is kept. Nothing of torch_webgpu is to be loaded.
  execute_process(
    COMMAND
      "${CMAKE_COMMAND}" -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 "${Python_EXECUTABLE}" -c
      "import torch.distributed as d; print('ON' if d.is_available() else 'OFF', end='')"
    OUTPUT_VARIABLE _distributed COMMAND_ERROR_IS_FATAL ANY)
  set(TORCH_WEBGPU_DISTRIBUTED "${_distributed}" CACHE BOOL "Build the backend of torch.distributed"
                                                       FORCE)
  set(TORCH_WEBGPU_DISTRIBUTED_ASKED "${_distributed_asked}" CACHE INTERNAL
                                                                   "What was asked for that")
endif()
message(STATUS "torch.distributed: ${TORCH_WEBGPU_DISTRIBUTED}")
