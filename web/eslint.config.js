import js from "@eslint/js";
import typescript from "typescript-eslint";

export default typescript.config(
  { ignores: ["dist/", "node_modules/", "tests/files/", "torch/generated/"] },
  js.configs.recommended,
  ...typescript.configs.strict,
  {
    rules: {
      // An index that the code has checked.
      "@typescript-eslint/no-non-null-assertion": "off",
      eqeqeq: "error",
    },
  },
  {
    files: ["**/*.mjs"],
    languageOptions: {
      globals: { process: "readonly", console: "readonly", URL: "readonly", Buffer: "readonly" },
    },
  },
);
