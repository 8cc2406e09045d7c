/** Whether what takes long runs as well, of which `make test-web` has others like it: `make long-web` asks for it. */
export const long = process.env.TORCH_LONG === "1";
